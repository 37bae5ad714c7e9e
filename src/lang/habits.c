/*
 * Habits of other languages: what people write who know Triton, CUDA, NumPy, PyTorch, Python or C, and what Quern has
 * instead. In: a word, dotted or not, that the lexer, the parser or the checker could not use. Out: one sentence of
 * advice, or NULL.
 *
 * The table is asked only where something is wrong already (a dot behind a name always is): most of these words are
 * good names of variables. A dotted word is looked up whole, then by its beginning (`tl.`), then by its end (`.shape`).
 * SPDX-License-Identifier: MIT
 */
#include "lang/parse.h"

typedef struct habit {
    const char *word, *advice;
} habit;

static const habit habits[] = {
    /* Triton */
    {"tl.load", "read a slice, which knows where its array ends and needs no mask: `tile float v = x[i : BLOCK];`"},
    {"tl.store", "assign to a slice, which writes only what lies inside the array: `y[i : BLOCK] = v;`"},
    {"tl.program_id", "write `program(0)`"},
    {"tl.num_programs", "write `programs(0)`"},
    {"tl.arange", "a slice needs no offsets: write `x[i : BLOCK]`; numbers themselves are `iota(BLOCK)`"},
    {"tl.constexpr", "a compile-time constant is a parameter `const int BLOCK = 1024`"},
    {"tl.zeros", "declare the tile with its extents: `tile float acc[BM][BN] = 0;`"},
    {"tl.full", "declare the tile with its extents: `tile float acc[BM][BN] = -inf;`"},
    {"tl.cdiv", "write `cdiv(n, BLOCK)`"},
    {"tl.trans", "write `transpose(t)`"},
    {"tl.make_block_ptr", "there are no pointers: slice the array, `a[i : BM][k : BK]`"},
    {"tl.dtype", "types are float, bf16, f16, i32, ..., or a generic one such as `T`"},
    {"tl.float32", "write `float`"},
    {"tl.float16", "write `f16`"},
    {"tl.bfloat16", "write `bf16`"},
    {"tl.int32", "write `i32`"},
    {"tl.int64", "write `i64`"},
    {"triton.jit",
     "there are no decorators: a kernel is `kernel name(in float x[n], out float y[n]) launch (...) { ... }`"},
    {"triton.autotune", "list candidates behind the parameters: `tune (BLOCK in {64, 128}, warps in {4, 8})`"},
    {"triton.Config", "list candidates behind the parameters: `tune (BLOCK in {64, 128}, warps in {4, 8})`"},
    {"autotune", "list candidates behind the parameters: `tune (BLOCK in {64, 128}, warps in {4, 8})`"},
    {"num_warps", "remove it, or let it be tried: `tune (warps in {4, 8})` behind the parameters"},
    {"num_stages", "remove it, or let it be tried: `tune (stages in {2, 4})` behind the parameters"},
    {"triton.cdiv", "write `cdiv(n, BLOCK)`"},
    {"tl.static_range", "a loop is `for (int i = 0; i < n; i++)`; with constant bounds it is unrolled"},
    {"tl.range", "a loop is `for (int i = 0; i < n; i++)`"},
    {"tl.debug_barrier", "remove it: a tile has no threads to wait for; another phase is `then launch (...)`"},
    {"tl.multiple_of", "remove it: the host knows extents and strides; `assume(n % 16 == 0);` says what must hold"},
    {"tl.max_contiguous", "remove it: the host knows extents and strides"},
    {"tl.atomic_add", "write `atomic_add(y[i : BLOCK], v)`"},
    {"tl.device_print", "write `print(\"m = {}\", m);`"},
    {"load", "read a slice, which knows where its array ends: `tile float v = x[i : BLOCK];`"},
    {"store", "assign to a slice, which writes only what lies inside the array: `y[i : BLOCK] = v;`"},
    {"program_id", "write `program(0)`"},
    {"num_programs", "write `programs(0)`"},
    {"arange", "in a kernel numbers are `iota(BLOCK)`; a slice needs none: `x[i : BLOCK]`"},
    {"mask", "a slice knows where its array ends; other masks are `keep(t, condition)`"},
    {"other", "a slice that sticks out has no value there; give it one with `fill(x[i : BLOCK], 0)`"},
    {"offsets", "a slice needs no offsets: write `x[i : BLOCK]`"},
    /* CUDA */
    {"threadIdx", "a tile has no threads: a program works on a whole block `x[i : BLOCK]`; CUDA as it is goes into a "
                  "`cuda` kernel"},
    {"blockIdx", "write `program(0)`"},
    {"blockDim", "the length of a block is a parameter `const int BLOCK = 256` and a slice `x[i : BLOCK]`"},
    {"gridDim", "write `programs(0)`"},
    {"warpSize", "a tile has no warps: reductions such as `sum(v)` use them"},
    {"__global__", "a kernel is `kernel name(in float x[n], out float y[n]) launch (...) { ... }`; CUDA as it is goes "
                   "into `cuda name(...) launch (...) block (256) \"\"\"source\"\"\"`"},
    {"__device__", "a function is `float name(float x) { ... }`; it is expanded where it is called"},
    {"__host__", "a function is `float name(float x) { ... }`; it is expanded where it is called"},
    {"__forceinline__", "remove it: functions are expanded where they are called"},
    {"__shared__", "a block of elements is a tile, `tile float s[256] = 0;`: the compiler chooses registers or shared "
                   "memory"},
    {"__restrict__", "remove it: arrays of a launch never overlap"},
    {"__syncthreads", "remove it: a tile has no threads to wait for; another phase is `then launch (...)`"},
    {"syncthreads", "remove it: a tile has no threads to wait for; another phase is `then launch (...)`"},
    {"get_global_id", "a program works on a whole block: its number is `program(0)`, its elements `x[i : BLOCK]`"},
    {"get_group_id", "write `program(0)`"},
    {"get_local_id", "a tile has no threads: a program works on a whole block `x[i : BLOCK]`"},
    {"barrier", "remove it: a tile has no threads to wait for; another phase is `then launch (...)`"},
    {"make_float4", "there are no vector types: a slice is read in the widest pieces there are"},
    {"make_float2", "there are no vector types: a slice is read in the widest pieces there are"},
    {"malloc", "memory between phases is a parameter: `scratch float s[n]`"},
    {"new", "memory between phases is a parameter: `scratch float s[n]`"},
    {"static_cast", "cast by calling the type: `float(x)`"},
    {"reinterpret_cast", "write `bitcast(i32, x)`; there are no pointers"},
    {"nullptr", "there are no pointers: every array of a launch is given"},
    {"NULL", "there are no pointers: every array of a launch is given"},
    {"asm", "CUDA as it is goes into `cuda name(...) launch (...) block (256) \"\"\"source\"\"\"`"},
    {"switch", "write `if (...) { ... } else if (...) { ... }`, or a choice `condition ? a : b`"},
    {"do", "write `while (condition) { ... }`"},
    {"goto", "write a loop, `while (condition) { ... }`"},
    {"std", "functions go by their bare names: `max(a, b)`"},
    {"cub", "reductions and scans of a tile are functions: `sum(v)`, `max(v)`, `cumsum(v)`; of arrays too, in a tensor "
            "function, with `sort(x, axis = 0)`"},
    {"thrust", "of arrays there are `sum(x)`, `cumsum(x, axis = 0)` and `sort(x, axis = 0)`, in a tensor function"},
    {"cooperative_groups", "a tile has no threads: reductions such as `sum(v)` use them; another phase is `then launch "
                           "(...)`"},
    {"using", "remove it: there are no name spaces but those of `import \"name.qn\" as name;`"},
    {"namespace", "another file's names are apart with `import \"name.qn\" as name;`"},
    {"__syncwarp", "remove it: a tile has no threads to wait for"},
    {"__shfl_down_sync", "reduce the tile: `sum(v)`, `max(v)`"},
    {"__shfl_xor_sync", "reduce the tile: `sum(v)`, `max(v)`"},
    {"__ldg", "read the array: `x[i]`"},
    {"atomicAdd", "write `atomic_add(y[i], v)`"},
    {"atomicMax", "write `atomic_max(y[i], v)`"},
    {"atomicMin", "write `atomic_min(y[i], v)`"},
    {"atomicCAS", "write `atomic_cas(y[i], expected, v)`"},
    {"atomicExch", "write `atomic_exchange(y[i], v)`"},
    {"float2", "there are no vector types: a slice is read in the widest pieces there are"},
    {"float4", "there are no vector types: a slice is read in the widest pieces there are"},
    {"double2", "there are no vector types: a slice is read in the widest pieces there are"},
    {"int4", "there are no vector types: a slice is read in the widest pieces there are"},
    {"__half2", "there are no vector types: a slice of `f16` is read in the widest pieces there are"},
    {"half2", "there are no vector types: a slice of `f16` is read in the widest pieces there are"},
    {"__half", "write `f16`"},
    {"__nv_bfloat16", "write `bf16`"},
    {"dim3", "the launch gives its counts: `launch (cdiv(n, 32), cdiv(m, 32))`"},
    {"expf", "write `exp`: functions take every type"},
    {"__expf", "write `exp`: the device's fast form is the default"},
    {"exp2f", "write `exp2`: functions take every type"},
    {"logf", "write `log`: functions take every type"},
    {"__logf", "write `log`: the device's fast form is the default"},
    {"sqrtf", "write `sqrt`: functions take every type"},
    {"rsqrtf", "write `rsqrt`: functions take every type"},
    {"tanhf", "write `tanh`: functions take every type"},
    {"erff", "write `erf`: functions take every type"},
    {"sinf", "write `sin`: functions take every type"},
    {"cosf", "write `cos`: functions take every type"},
    {"powf", "write `pow`: functions take every type"},
    {"fabsf", "write `abs`: functions take every type"},
    {"fabs", "write `abs`: functions take every type"},
    {"fmaxf", "write `max`: functions take every type"},
    {"fmax", "write `max`: functions take every type"},
    {"fminf", "write `min`: functions take every type"},
    {"fmin", "write `min`: functions take every type"},
    {"fmaf", "write `fma`: functions take every type"},
    {"floorf", "write `floor`: functions take every type"},
    {"ceilf", "write `ceil`: functions take every type"},
    {"__fdividef", "write `a / b`: the device's fast form is the default"},
    {"INFINITY", "write `inf`"},
    {"NAN", "write `nan`"},
    {"FLT_MAX", "write `inf`"},
    {"M_PI", "write `pi`"},
    {"printf", "write `print(\"m = {}\", m);`"},
    /* NumPy and PyTorch */
    {".T", "write `transpose(x)`"},
    {".mT", "write `transpose(x)`"},
    {".t", "write `transpose(x)`"},
    {".shape", "extents have names, those in the parameter's brackets: `float x[rows][cols]`"},
    {".size", "extents have names, those in the parameter's brackets: `float x[rows][cols]`"},
    {".ndim", "the rank is the number of the parameter's brackets; `rank(x)` in a tensor function with `[...]`"},
    {".dtype", "name the type in the parameter, `T x[n]` for any of them"},
    {".to", "cast by calling the type: `bf16(x)`"},
    {".astype", "cast by calling the type: `bf16(x)`"},
    {".type", "cast by calling the type: `bf16(x)`"},
    {".float", "cast by calling the type: `float(x)`"},
    {".half", "cast by calling the type: `f16(x)`"},
    {".bfloat16", "cast by calling the type: `bf16(x)`"},
    {".view", "write `reshape(x, a, b)`"},
    {".numel", "the product of its extents: `rows * cols`"},
    {".cpu", "remove it: the caller chooses the device"},
    {".device", "remove it: the caller chooses the device"},
    {".numpy", "remove it: results are the caller's arrays"},
    {".requires_grad", "remove it: `grad(f, w)(x, w)` names what to differentiate by"},
    {".requires_grad_", "remove it: `grad(f, w)(x, w)` names what to differentiate by"},
    {".values", "a reduction gives the values alone; `let (v, i) = topk(x, 1, axis = 1)` gives both"},
    {".indices", "write `argmax(x, axis = 1)`; `let (v, i) = topk(x, 1, axis = 1)` gives both"},
    {".copy", "remove it: values do not change"},
    {".clone", "remove it: values do not change"},
    {".at", "there is nothing in place: `where(arange(n) == k, v, x)` gives the array with another element"},
    {".vectorize", "remove it: a slice is read in the widest pieces there are; `tune (...)` lists what to try"},
    {".parallel", "remove it: programs of a launch run side by side; `tune (...)` lists what to try"},
    {".unroll", "remove it: loops with constant bounds are unrolled"},
    {".compute_at", "remove it: the compiler fuses; `quern show FILE NAME --stage fusion` says what and why"},
    {".add_", "there is nothing in place: write `x + y`"},
    {".mul_", "there is nothing in place: write `x * y`"},
    {".double", "cast by calling the type: `double(x)`"},
    {".int", "cast by calling the type: `i32(x)`"},
    {".long", "cast by calling the type: `i64(x)`"},
    {".bool", "compare: `x != 0`"},
    {".item", "a reduction of everything, such as `sum(x)`, is one number already"},
    {".contiguous", "remove it: layout is the compiler's business"},
    {".cuda", "remove it: the caller chooses the device"},
    {".backward", "write `grad(f)(x, ...)` for a tensor function f"},
    {".x", "there are no members: an array of numbers is `float x[n]`, a program's number `program(0)`"},
    {"torch.nn", "functions go by their names: `gelu(x)`, `softmax(x, axis = 1)`, `layer_norm(x, gain, bias)`"},
    {"torch.mm", "write `a @ b`, or `matmul(a, b)`"},
    {"torch.bmm", "write `a @ b`, or `matmul(a, b)`"},
    {"torch.cat", "write `concat(a, b, axis = 1)`"},
    {"torch.amax", "write `max(x, axis = 1)`"},
    {"torch.tensor", "numbers need no tensor; a block of them is `full(0.5, n)`, `arange(10)` or a parameter"},
    {"torch.float32", "write `float`"},
    {"torch.float16", "write `f16`"},
    {"torch.bfloat16", "write `bf16`"},
    {"np.dot", "write `a @ b`, or `matmul(a, b)`"},
    {"np.float32", "write `float`"},
    {"np.concatenate", "write `concat(a, b, axis = 1)`"},
    {"np.power", "write `pow(x, 2)`"},
    {"np.newaxis", "an axis of one is `[]`: `m[:][]` is a column, `m[][:]` a row"},
    {"mm", "write `a @ b`, or `matmul(a, b)`"},
    {"bmm", "write `a @ b`, or `matmul(a, b)`"},
    {"cat", "write `concat(a, b, axis = 1)`"},
    {"clip", "write `clamp(x, low, high)`"},
    {"multiply", "write `a * b`"},
    {"subtract", "write `a - b`"},
    {"divide", "write `a / b`"},
    {"absolute", "write `abs(x)`"},
    {"logical_and", "write `a && b`"},
    {"logical_or", "write `a || b`"},
    {"logical_not", "write `!a`"},
    {"swapaxes", "write `permute(x, 1, 0)`, or `transpose(x)` for the last two"},
    {"moveaxis", "write `permute(x, 1, 0)`"},
    {"value_and_grad", "write the value and `grad(f, w)(x, w)`: what both need is computed once"},
    {"jit", "remove it: every function is compiled"},
    {"no_grad", "remove it: only `grad(f, w)` differentiates; `detach(x)` stops a gradient"},
    {"stop_gradient", "write `detach(x)`"},
    {"broadcast_to", "write `expand(x, a, b)`"},
    {"expand_as", "write `expand(x, a, b)`"},
    {"meshgrid", "write `iota(n)[:][]` and `iota(m)[][:]`"},
    {"nonzero", "shapes do not depend on values: write `where(condition, a, b)`"},
    {"pmap", "there is one device: write the axis, functions take any rank with `[...]`"},
    {"jacobian", "gradients are of one number: `grad(f, w)(x, w)`"},
    {"hessian", "gradients are of one number: `grad(f, w)(x, w)`"},
    {"vjp", "gradients are of one number: `grad(f, w)(x, w)`"},
    {"jvp", "gradients are of one number: `grad(f, w)(x, w)`"},
    {"fori_loop", "a loop is `for (int i = 0; i < n; i++)`; that of a tensor function is unrolled"},
    {"while_loop",
     "in a kernel a loop is `while (condition)`; that of a tensor function counts: `for (int i = 0; i < 8; "
     "i++)`"},
    {"cond", "write `condition ? a : b`, of elements `where(condition, a, b)`"},
    {"vmap", "write the axis: functions take any rank with `[...]`"},
    {"Tensor", "a tensor is its element type and its extents: `float x[B][D]`"},
    {"torch.Tensor", "a tensor is its element type and its extents: `float x[B][D]`"},
    {"np.ndarray", "a tensor is its element type and its extents: `float x[B][D]`"},
    {"concatenate", "write `concat(a, b, axis = 1)`"},
    {"view", "write `reshape(x, a, b)`"},
    {"amax", "write `max(x, axis = 1)`"},
    {"amin", "write `min(x, axis = 1)`"},
    {"exp_", "there is nothing in place: write `exp(x)`"},
    {"zeros_like", "write `like(x, 0)`"},
    {"ones_like", "write `like(x, 1)`"},
    {"full_like", "write `like(x, v)`"},
    {"masked_fill", "write `where(mask, value, x)`"},
    {"einsum", "write `matmul`, `outer` or a product and a `sum` over an axis"},
    {"tril", "write `where(iota(n)[:][] >= iota(n)[][:], x, 0)`"},
    {"triu", "write `where(iota(n)[:][] <= iota(n)[][:], x, 0)`"},
    {"leaky_relu", "declare it: `T leaky_relu(T x) { return x >= 0 ? x : 0.01 * x; }`"},
    {"elu", "declare it: `T elu(T x) { return x > 0 ? x : exp(x) - 1; }`"},
    /* Python */
    {"def", "a kernel is `kernel name(in float x[n], out float y[n]) launch (...) { ... }`, a function of tensors "
            "`tensor name(float x[n]) { return ...; }`"},
    {"from", "another file is `import \"name.qn\";`; functions go by their bare names"},
    {"fn", "a function of tensors is `tensor name(float x[n]) { return ...; }`, one of numbers `float name(float x) { "
           "... }`"},
    {"function", "a function of tensors is `tensor name(float x[n]) { return ...; }`, one of numbers `float name(float "
                 "x) { ... }`"},
    {"class", "a model is tensor functions and their parameters; layers with state are in the C library's `model.h`"},
    {"lambda", "declare a function: `float name(float x) { return ...; }`"},
    {"range", "a loop is `for (int i = 0; i < n; i++)`"},
    {"len", "extents have names, those in the parameter's brackets"},
    {"None", "an axis of one is `[]`: `m[:][]` is a column, `m[][:]` a row"},
    {"newaxis", "an axis of one is `[]`: `m[:][]` is a column, `m[][:]` a row"},
    {"True", "write `true`"},
    {"False", "write `false`"},
    {"and", "write `&&`"},
    {"or", "write `||`"},
    {"not", "write `!`"},
    {"is", "write `==`"},
    {"pass", "write `;`"},
    {"assert", "write `assert(condition);` in a kernel, `assume(condition);` about sizes"},
    {"with", "there are no contexts: only `grad(f, w)` differentiates"},
    {"raise", "say what must hold: `assert(condition);` in a kernel, `assume(condition);` about sizes"},
    {"try", "there are no exceptions: a failed `assert(condition);` is the launch's error"},
    {"global", "remove it: a constant of the file is `const int N = 4;`"},
    {"yield", "a function returns once, as many results as it likes: `return a, b;`"},
    {"mut", "remove it: a name of a tensor function may be assigned again"},
    {"val", "name the type: `float s = ...;`, in a tensor function `let h = ...;`"},
    {"elif", "write `else if`"},
    {"self", "a function has only its parameters"},
    /* types */
    {"float32", "write `float`"},
    {"float64", "write `double`"},
    {"float16", "write `f16`"},
    {"half", "write `f16`"},
    {"bfloat16", "write `bf16`"},
    {"fp32", "write `float`"},
    {"fp16", "write `f16`"},
    {"fp8", "write `f8e4m3`"},
    {"int8", "write `i8`"},
    {"int16", "write `i16`"},
    {"int32", "write `i32`"},
    {"int64", "write `i64`"},
    {"uint8", "write `u8`"},
    {"uint32", "write `u32`"},
    {"int8_t", "write `i8`"},
    {"int16_t", "write `i16`"},
    {"int32_t", "write `i32`"},
    {"int64_t", "write `i64`"},
    {"uint8_t", "write `u8`"},
    {"uint16_t", "write `u16`"},
    {"uint32_t", "write `u32`"},
    {"uint64_t", "write `u64`"},
    {"char", "write `i8` or `u8`"},
    {"short", "write `i16`"},
    {"long", "write `i64`; an `int` of counting has 64 bits"},
    {"unsigned", "write `u32`"},
    {"size_t", "write `int`: it has 64 bits"},
    {"auto", "name the type: `float s = ...;`, `tile float v = ...;`, in a tensor function `let h = ...;`"},
    {"var", "name the type: `float s = ...;`, `tile float v = ...;`, in a tensor function `let h = ...;`"},
    {"constexpr", "write `const int N = 4;`"},
    {"static", "remove it: there is one file"},
    {"inline", "remove it: functions are expanded where they are called"},
    {"extern", "remove it: CUDA as it is goes into a `cuda` kernel"},
    {"template", "a generic type is a capital letter: `T twice(T x) { return 2 * x; }`"},
    {"__kernel", "a kernel is `kernel name(in float x[n], out float y[n]) launch (...) { ... }`"},
    {"__local", "a block of elements is a tile, `tile float s[256] = 0;`: the compiler chooses where it lies"},
    {"__private", "remove it: `tile float v = ...;` is the program's own"},
    {"__constant", "a small table is a parameter: `in float table[16]`"},
    {"device",
     "there are no spaces of memory: an array that is read is `in float x[n]`, one that is written `out float y[n]`"},
    {"threadgroup", "a block of elements is a tile, `tile float s[256] = 0;`: the compiler chooses where it lies"},
    {"Func",
     "a function of tensors is `tensor name(float x[n]) { return ...; }`; how it is run is the compiler's business"},
    {"Var", "indices have no declaration: a slice is `x[i : BLOCK]`, a whole axis `x[r][:]`"},
    {"RDom", "a reduction is a function: `sum(x, axis = 1)`, `max(x)`"},
    {"end", "an axis ends at its extent: the last element of `float x[n]` is `x[n - 1]`; a block ends with `}`"},
    {"begin", "a block is `{ ... }`"},
    {"struct", "there are no structures: pass arrays and numbers"},
    {"typedef", "types are float, bf16, f16, i32, ..., or a generic one such as `T`"},
};

/* What a beginning says when the whole word is not there. */
static const habit beginnings[] = {
    {"tl.", "functions go by their bare names: `exp`, `max`, `dot`, `where`"},
    {"triton.", "a kernel is `kernel name(in float x[n], out float y[n]) launch (...) { ... }`"},
    {"np.", "functions go by their bare names: `exp(x)`, `sum(x, axis = 0)`"},
    {"numpy.", "functions go by their bare names: `exp(x)`, `sum(x, axis = 0)`"},
    {"torch.", "functions go by their bare names: `softmax(x, axis = 1)`, `sum(x, axis = 0)`"},
    {"F.", "functions go by their bare names: `gelu(x)`, `softmax(x, axis = 1)`"},
    {"nn.", "functions go by their bare names: `gelu(x)`, `layer_norm(x, gain, bias)`"},
    {"jnp.", "functions go by their bare names: `exp(x)`, `sum(x, axis = 0)`"},
    {"math.", "functions go by their bare names: `sqrt(x)`, `exp(x)`"},
    {"linalg.", "functions go by their bare names: `norm(x)`, `a @ b`"},
    {"scipy.", "functions go by their bare names: `erf(x)`, `softmax(x, axis = 1)`"},
    {"tf.", "functions go by their bare names: `relu(x)`, `sum(x, axis = 0)`"},
    {"lax.", "functions go by their bare names: `max(a, b)`, `cumsum(x, axis = 0)`"},
    {"jax.", "functions go by their bare names: `gelu(x)`, `softmax(x, axis = 1)`"},
    {"keras.", "functions go by their bare names: `relu(x)`, `softmax(x, axis = 1)`"},
    {"cp.", "functions go by their bare names: `exp(x)`, `sum(x, axis = 0)`"},
    {"cupy.", "functions go by their bare names: `exp(x)`, `sum(x, axis = 0)`"},
    {"mx.", "functions go by their bare names: `exp(x)`, `sum(x, axis = 0)`"},
    {"cuda.", "a program works on a whole block `x[i : BLOCK]`; CUDA as it is goes into a `cuda` kernel"},
    {"numba.", "a kernel is `kernel name(in float x[n], out float y[n]) launch (...) { ... }`"},
    {"std.", "functions go by their bare names: `max(a, b)`"},
};

/* Arguments given by a name that Quern calls otherwise. */
static const habit arguments[] = {
    {"dim", "write `axis = k`"},
    {"dims", "write `axis = {0, 1}`"},
    {"keepdim", "a reduction leaves an axis of one behind; `keep = false` drops it"},
    {"keepdims", "a reduction leaves an axis of one behind; `keep = false` drops it"},
    {"keep_dims", "a reduction leaves an axis of one behind; `keep = false` drops it"},
    {"eps", "write `epsilon = 1e-5`"},
    {"dtype", "cast by calling the type: `bf16(x)`"},
    {"mask", "a slice knows where its array ends; other masks are `keep(t, condition)`"},
    {"other", "a slice that sticks out has no value there; give it one with `fill(x[i : BLOCK], 0)`"},
    {"start_dim", "write `first = 1`"},
    {"is_causal", "write `causal = true`"},
    {"attn_mask", "give the mask as the fourth argument"},
    {"reduction", "the mean is the default; write `sum = true` or `each = true`"},
    {"ignore_index", "write `ignore = k`"},
    {"unbiased", "write `correction = 1` or `correction = 0`"},
};

static const char *advice_in(const habit *table, int count, const char *word)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(table[i].word, word)) return table[i].advice;
    return NULL;
}

const char *habit_advice(const char *word)
{
    return advice_in(habits, COUNT(habits), word);
}

const char *habit_argument(const char *name)
{
    return advice_in(arguments, COUNT(arguments), name);
}

/* `tl.exp` where `exp` is a function: only the beginning goes. */
static const char *bare_function(arena *memory, const char *word)
{
    const char *last = strrchr(word, '.') + 1;
    if (!strcmp(last, "pi") || !strcmp(last, "inf") || !strcmp(last, "nan"))
        return arena_print(memory, "write `%s`", last);
    return builtin_find(last) ? arena_print(memory, "write `%s(...)`", last) : habit_advice(last); /* np.clip */
}

static const char *dotted_advice(arena *memory, const char *word)
{
    const char *advice = habit_advice(word), *dot = strchr(word, '.');
    for (int i = 0; !advice && i < COUNT(beginnings); i++) {
        if (strncmp(word, beginnings[i].word, strlen(beginnings[i].word))) continue;
        advice = bare_function(memory, word);
        if (!advice) advice = beginnings[i].advice;
    }
    const char *first = arena_copy_text(memory, word, (size_t)(dot - word));
    if (!advice) advice = habit_advice(first); /* threadIdx.x */
    if (!advice) advice = habit_advice(strrchr(word, '.'));
    if (advice) return advice;
    const char *last = strrchr(word, '.') + 1;
    if (builtin_find(last))
        return arena_print(memory, "functions are called by name: `%s(%s, ...)`", last, dot == word ? "x" : first);
    return "there are no members and no methods: arrays, extents and functions go by their bare names";
}

void habit_dotted(diagnostics *d, arena *memory, place at, const char *word)
{
    const char *advice = dotted_advice(memory, word);
    for (int i = 0; i < d->count; i++) /* a pasted kernel says threadIdx.x often */
        if (d->items[i].code == E110 && d->items[i].advice && !strcmp(d->items[i].advice, advice)) return;
    diagnose(d, E110, at, advice, "there is no `%.60s` in Quern", word);
}

/* How a function is called that takes its arguments in another order, or by other names, elsewhere. */
static const habit forms[] = {
    {"gather", "write `gather(x, index, axis = 1)`"},
    {"index_select", "write `index_select(x, index, axis = 0)`"},
    {"scatter_add", "write `scatter_add(base, index, updates, axis = 0)`"},
    {"index_add", "write `index_add(base, index, updates, axis = 0)`"},
    {"index_copy", "write `index_copy(base, index, updates, axis = 0)`"},
    {"topk", "write `let (v, i) = topk(x, 4, axis = 1);`"},
    {"one_hot", "write `one_hot(index, classes)`"},
    {"where", "write `where(condition, a, b)`; indices of what holds have no shape that is known before"},
    {"clamp", "write `clamp(x, low, high)`"},
    {"masked_fill", "write `masked_fill(x, mask, -inf)`"},
    {"embedding", "write `embedding(table, index)`"},
    {"cross_entropy", "write `cross_entropy(x, target)`"},
    {"linear", "write `linear(x, w, bias)`; weights `[out][in]` with `transposed = true`"},
    {"conv2d", "write `conv2d(x, w, bias, stride = 1, padding = 0, dilation = 1, groups = 1)`"},
    {"max_pool2d", "write `max_pool2d(x, 3, stride = 2, padding = 1)`"},
    {"layer_norm", "write `layer_norm(x, gain, bias, axes = 1, epsilon = 1e-5)`"},
    {"dropout", "write `dropout(x, p)`"},
    {"transpose", "write `permute(x, 1, 0)`, every axis by its number; `transpose(x)` turns the last two"},
};

const char *habit_form(const char *name)
{
    return advice_in(forms, COUNT(forms), name);
}

const char *habit_axis(const char *name)
{
    static const char *const names[] = {"softmax", "log_softmax", "logsumexp", "var",  "std",
                                        "squeeze", "unsqueeze",   "flip",      "sort", "argsort"};
    const builtin *b = builtin_find(name);
    if (!b) return NULL;
    if (b->class == BUILTIN_REDUCE || b->class == BUILTIN_SCAN) return "axis";
    for (int i = 0; i < COUNT(names); i++)
        if (!strcmp(names[i], name)) return "axis";
    return !strcmp(name, "flatten") ? "first" : NULL;
}

static bool same_words(const ast *a, const ast *b)
{
    text one = {0}, two = {0};
    lang_format_expression(a, &one);
    lang_format_expression(b, &two);
    bool same = !strcmp(text_get(&one), text_get(&two));
    text_free(&one);
    text_free(&two);
    return same;
}

void habit_slice(parser *p, const ast *subscript)
{
    const ast *start = subscript->left, *length = subscript->right;
    if (p->panic || !start) return;
    if (!subscript->is_slice) {
        if (start->kind == AST_UNARY && !strcmp(start->word, "-") && start->left->kind == AST_NUMBER)
            diagnose(p->d, W603, start->from, "the last element of an axis n is `[n - 1]`",
                     "an index below 0 lies outside: it does not count from the end");
        return;
    }
    if (length && length->kind == AST_UNARY && !strcmp(length->word, "-") && length->left->kind == AST_NUMBER) {
        bool whole_numbers = start->kind == AST_NUMBER && !start->is_float && !length->left->is_float;
        int64_t both;
        const char *whole = "[i : n - i]";
        if (whole_numbers && !__builtin_add_overflow(start->number.i, length->left->number.i, &both))
            whole = arena_print(p->file->memory, "[%lld : n - %lld]", (long long)start->number.i, (long long)both);
        diagnose(p->d, W603, length->from, arena_print(p->file->memory, "of an axis n it is `%s`", whole),
                 "a slice is start and length: a length below 0 is nothing, it does not count from the end");
        return;
    }
    if (!length || length->kind != AST_BINARY || strcmp(length->word, "+") || length->parenthesised) return;
    const ast *rest = NULL;
    if (start->kind != AST_NUMBER && same_words(start, length->left)) rest = length->right;
    if (!rest && start->kind != AST_NUMBER && same_words(start, length->right)) rest = length->left;
    if (!rest) return;
    text words = {0}, whole = {0};
    lang_format_expression(start, &words);
    lang_format_expression(length, &whole);
    text_add(&words, " : ");
    lang_format_expression(rest, &words);
    diagnose(p->d, W603, length->from, arena_print(p->file->memory, "write `[%s]`", text_get(&words)),
             "a slice is start and length: this one is `%s` long", text_get(&whole));
    text_free(&words);
    text_free(&whole);
}

void habit_extreme(diagnostics *d, arena *memory, const ast *call, int rank)
{
    const char *name = call->left->name;
    const ast *second = call->list.count == 2 ? call->list.items[1] : NULL;
    bool minus = second && second->kind == AST_UNARY && !strcmp(second->word, "-");
    if (minus) second = second->left;
    if (!second || rank < 2 || (strcmp(name, "max") && strcmp(name, "min"))) return;
    if (second->kind != AST_NUMBER || second->is_float || second->number.i < 1 || second->number.i >= rank + minus)
        return;
    for (int i = 0; i < d->count; i++)
        if (d->items[i].code == W603 && d->items[i].at.line == call->at.line &&
            d->items[i].at.column == call->at.column)
            return; /* a body is gone through more than once */
    const char *axis = arena_print(memory, "%s%lld", minus ? "-" : "", (long long)second->number.i);
    diagnose(d, W603, call->at,
             arena_print(memory, "of an axis it is `%s(x, axis = %s)`; the number is written `%s.0`", name, axis, axis),
             "`%s(x, %s)` compares each element with %s", name, axis, axis);
}
