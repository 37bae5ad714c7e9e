#pragma once
#include "plus.cuh"

template <typename T, T (*Fold)(T, T)> __device__ void tree(T *part)
{
    for (int step = blockDim.x / 2; step; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) part[threadIdx.x] = Fold(part[threadIdx.x], part[threadIdx.x + step]);
    }
    __syncthreads();
}
