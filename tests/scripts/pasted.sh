#!/bin/sh
# CUDA and C as people have them, pasted: parameters in their own order with numbers of their own width, found by name; flags
# of host compilers left out with a note; the toolkit's headers where the text needs them.
# Usage: tests/scripts/pasted.sh BUILD_FOLDER
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
quern="$(cd "${1:-build}" && pwd)/quern"
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUERN_CACHE="$work/cache"
cd "$work" || exit 1
passed=0
failed=0
holds() {
    what=$1
    shift
    if "$@" >log 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $what"
        cat log out
    fi
}
cat >file.qn <<'END'
kernel by_tile(in float x[n], inout float y[n], float a = 3, const int B = 64)  launch (cdiv(n, B))
{
    y[program(0) * B : B] += a * x[program(0) * B : B];
}

cuda saxpy(in float x[n], inout float y[n], float a = 3)  launch (cdiv(n, 128)) block (128) options ("-O2", "-Wall", "-DONE=1")
"""
__global__ void saxpy(int n, float a, const float *__restrict__ x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = ONE * a * x[i] + y[i];
}
"""

c saxpy_c(in float x[n], inout float y[n], float a = 3)
"""
void saxpy_c(int n, double a, const float *x, float *y)
{
    for (int i = 0; i < n; i++) y[i] += (float)a * x[i];
}
"""

bench saxpy (n = 1000) { by_tile, saxpy, saxpy_c }
END
"$quern" check file.qn saxpy --device emu >out 2>&1
holds "a pasted CUDA kernel runs" grep -q '^saxpy: clean' out
holds "flags of a host compiler are told" grep -q 'W604: the option `-O2` is of a host compiler and is left out' out
holds "each of them" grep -q 'W604: the option `-Wall`' out
holds "others go on" sh -c '! grep -q "W604.*DONE" out'
"$quern" check file.qn saxpy_c --device cpu >out 2>&1
holds "a pasted C function runs" grep -q '^saxpy_c: clean' out
sed -i 's/float \*__restrict__ x, float \*y)/float *__restrict__ u, float *y)/; s/a \* x\[i\] + y\[i\];$/a * u[i] + y[i];/' file.qn
"$quern" run file.qn saxpy --device emu --set n=10 >out 2>&1
holds "a name that is not there" grep -q 'or give the text.s parameters the names of the declaration, in any order' out
# The toolkit's own headers, where there is one and the text needs them.
mkdir -p toolkit/include
: >toolkit/include/cuda_fp16.h
cat >half.qn <<'END'
cuda pairs(in f16 x[n], out f16 y[n])  launch (1) block (32)
"""
#include <cuda_fp16.h>
extern "C" __global__ void pairs(const __half *x, __half *y, long n)
{
    __half2 two = reinterpret_cast<const __half2 *>(x)[threadIdx.x];
    reinterpret_cast<__half2 *>(y)[threadIdx.x] = __hadd2(two, two);
}
"""
END
CUDA_HOME=$work/toolkit "$quern" show half.qn pairs --stage cuda --device cuda >out 2>&1
holds "the toolkit's folder" grep -q "//option -I$work/toolkit/include" out
holds "and its header" grep -q '#include <cuda_fp16.h>' out
CUDA_HOME=$work/nowhere "$quern" show half.qn pairs --stage cuda --device cuda >out 2>&1
[ -f /usr/local/cuda/include/cuda_fp16.h ] || holds "none where there is none" sh -c '! grep -q "//option" out'
# Nine pieces as they stand in people's files: host headers, launch bounds, half2, wmma, cooperative groups, constant memory,
# printf, dynamic shared memory, templates, shuffles; each gives what its tile kernel gives.
"$quern" bench "$root/tests/data/pasted.qn" --device emu --seconds 0.001 >out 2>&1
holds "pasted pieces are right" sh -c '[ "$(grep -c " ok$" out)" = 15 ] && ! grep -qE "WRONG|: error" out'
if QUERN_CUDA_PATH= "$quern" show "$root/tests/data/pasted.qn" scale_tile --stage ptx --device cuda >/dev/null 2>&1 &&
    [ -f /usr/local/cuda/include/mma.h ]; then
    for name in pairs product rows_of poly; do
        QUERN_CUDA_PATH= "$quern" show "$root/tests/data/pasted.qn" $name --stage ptx --device cuda >out 2>&1
        holds "$name compiles for a GPU with the toolkit's headers" grep -q "entry ${name}_phase0" out
    done
fi
# A cluster of blocks: each adds what its neighbours have in shared memory.
cat >cluster.qn <<'END'
cuda sums(in float x[n], out float y[n], const int BLOCKS = 4)  launch (cdiv(n, 32 * BLOCKS) * BLOCKS) block (32)
"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void __cluster_dims__(BLOCKS, 1, 1) sums(const float *x, float *y, int n)
{
    __shared__ float own[32];
    cg::cluster_group cluster = cg::this_cluster();
    int i = blockIdx.x * 32 + threadIdx.x;
    own[threadIdx.x] = i < n ? x[i] : 0;
    cluster.sync();
    float sum = 0;
    for (unsigned b = 0; b < cluster.num_blocks(); b++) sum += cluster.map_shared_rank(own, b)[threadIdx.x];
    cluster.sync();
    if (i < n) y[i] = sum;
}
"""

kernel sums_tile(in float x[n], out float y[n])  launch (cdiv(n, 128))
{
    int i = program(0) * 128;
    tile float s = fill(x[i : 32], 0) + fill(x[i + 32 : 32], 0) + (fill(x[i + 64 : 32], 0) + fill(x[i + 96 : 32], 0));
    for (int b = 0; b < 4; b++) y[i + 32 * b : 32] = s;
}

bench sums (n = 300) { sums_tile, sums }
END
"$quern" bench cluster.qn --device emu --seconds 0.001 >out 2>&1
holds "blocks of a cluster meet" sh -c '[ "$(grep -c " ok$" out)" = 2 ]'
"$quern" show cluster.qn sums --stage cuda --set n=300 --device cuda >out 2>&1
holds "and its word goes to the launch" sh -c '! grep -q __cluster_dims__ out'
sed -i 's/cdiv(n, 32 \* BLOCKS) \* BLOCKS/cdiv(n, 32)/' cluster.qn
"$quern" run cluster.qn sums --set n=300 --device emu >out 2>&1
holds "whole clusters" grep -q 'E506: `sums` wants 10 blocks in clusters of 4: launch a multiple of that' out
sed -i 's/__cluster_dims__(BLOCKS, 1, 1)/__cluster_dims__(1, 4, 1)/' cluster.qn
"$quern" run cluster.qn sums --set n=300 --device emu >out 2>&1
holds "along the first axis" grep -q 'E506: `sums`: __cluster_dims__ gives 1 to 8 blocks along the first axis, as numbers' out
# What cannot be is answered with what to do.
cat >host.qn <<'END'
cuda add(in float a[n], out float c[n])  launch (cdiv(n, 256)) block (256)
"""
// launched as add<<<blocks, threads>>>: words of a comment are no code
__global__ void add(float *a, float *c, int n) { if (threadIdx.x < n) c[threadIdx.x] = a[threadIdx.x]; }
int main() { add<<<1, 256>>>(0, 0, 0); }
"""
END
"$quern" run host.qn --set n=4 --device emu >out 2>&1
holds "host code is named with its line" grep -q 'host.qn:5: error E508: the text of `cuda add` has host code: `int main(`' out
holds "and what to do" grep -q 'keep the `__global__` and `__device__` functions' out
sed -i '/^int main/d' host.qn
"$quern" run host.qn --set n=4 --device emu >out 2>&1
holds "words of a comment are no host code" grep -q '^c: f32\[4\]' out
sed -i 's/^__global__/#include <cub\/cub.cuh>\n__global__/' host.qn
CUDA_HOME=$work/nowhere "$quern" run host.qn --set n=4 --device emu >out 2>&1
holds "a header that emu has not" grep -q 'no other headers of the toolkit: leave the include out, or run the kernel on a GPU' out
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
