/*
 * CUDA's functions of numbers and bits in C++, for words.h: the C library's functions by their CUDA names, fast
 * forms by the exact ones, and conversions that saturate as the instructions do.
 * SPDX-License-Identifier: MIT
 */

// ---- arithmetic ----
#define EMU_MATH1(name) \
    extern "C" double name(double); \
    extern "C" float name##f(float); \
    static inline float name(float x) { return name##f(x); }
EMU_MATH1(acos) EMU_MATH1(acosh) EMU_MATH1(asin) EMU_MATH1(asinh) EMU_MATH1(atan) EMU_MATH1(atanh) EMU_MATH1(cbrt) EMU_MATH1(ceil)
EMU_MATH1(cos) EMU_MATH1(cosh) EMU_MATH1(erf) EMU_MATH1(erfc) EMU_MATH1(exp) EMU_MATH1(exp2) EMU_MATH1(exp10) EMU_MATH1(expm1)
EMU_MATH1(fabs) EMU_MATH1(floor) EMU_MATH1(lgamma) EMU_MATH1(log) EMU_MATH1(log10) EMU_MATH1(log1p) EMU_MATH1(log2) EMU_MATH1(logb)
EMU_MATH1(nearbyint) EMU_MATH1(rint) EMU_MATH1(round) EMU_MATH1(sin) EMU_MATH1(sinh) EMU_MATH1(sqrt) EMU_MATH1(tan) EMU_MATH1(tanh)
EMU_MATH1(tgamma) EMU_MATH1(trunc)
#define EMU_MATH2(name) \
    extern "C" double name(double, double); \
    extern "C" float name##f(float, float); \
    static inline float name(float x, float y) { return name##f(x, y); }
EMU_MATH2(atan2) EMU_MATH2(copysign) EMU_MATH2(fdim) EMU_MATH2(fmax) EMU_MATH2(fmin) EMU_MATH2(fmod) EMU_MATH2(hypot)
EMU_MATH2(nextafter) EMU_MATH2(pow) EMU_MATH2(remainder)
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
extern "C" double frexp(double, int *);
extern "C" float frexpf(float, int *);
extern "C" double ldexp(double, int);
extern "C" float ldexpf(float, int);
extern "C" double scalbn(double, int);
extern "C" float scalbnf(float, int);
extern "C" double modf(double, double *);
extern "C" float modff(float, float *);
extern "C" int ilogb(double);
extern "C" int ilogbf(float);
extern "C" long lrint(double);
extern "C" long lrintf(float);
extern "C" long lround(double);
extern "C" long lroundf(float);
extern "C" long long llrint(double);
extern "C" long long llrintf(float);
extern "C" long long llround(double);
extern "C" long long llroundf(float);
extern "C" void sincos(double, double *, double *);
extern "C" void sincosf(float, float *, float *);
static inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
static inline float rsqrtf(float x) { return (float)(1 / __builtin_sqrt((double)x)); }
static inline double rsqrt(double x) { return 1 / __builtin_sqrt(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline float rcbrtf(float x) { return 1 / cbrtf(x); }
static inline float sinpif(float x) { return (float)__builtin_sin((double)x * 3.14159265358979323846); }
static inline float cospif(float x) { return (float)__builtin_cos((double)x * 3.14159265358979323846); }
static inline float normcdff(float x) { return (float)(0.5 * __builtin_erfc((double)x * -0.70710678118654752440)); }
static inline float __expf(float x) { return expf(x); }
static inline float __exp10f(float x) { return exp10f(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __log2f(float x) { return log2f(x); }
static inline float __log10f(float x) { return log10f(x); }
static inline float __sinf(float x) { return sinf(x); }
static inline float __cosf(float x) { return cosf(x); }
static inline float __tanf(float x) { return tanf(x); }
static inline void __sincosf(float x, float *s, float *c) { sincosf(x, s, c); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float fdividef(float x, float y) { return x / y; }
static inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float __frsqrt_rn(float x) { return rsqrtf(x); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dsub_rn(double x, double y) { return x - y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __ddiv_rn(double x, double y) { return x / y; }
static inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
static inline double __drcp_rn(double x) { return 1 / x; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
#define EMU_TESTS(T) \
    static inline bool isnan(T x) { return __builtin_isnan(x); } \
    static inline bool isinf(T x) { return __builtin_isinf(x); } \
    static inline bool isfinite(T x) { return __builtin_isfinite(x); } \
    static inline bool signbit(T x) { return __builtin_signbit(x); }
EMU_TESTS(float) EMU_TESTS(double)
#define EMU_ORDER(T) \
    static inline T min(T a, T b) { return a < b ? a : b; } \
    static inline T max(T a, T b) { return a > b ? a : b; }
EMU_ORDER(int) EMU_ORDER(unsigned) EMU_ORDER(long) EMU_ORDER(unsigned long) EMU_ORDER(long long) EMU_ORDER(unsigned long long)
static inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
static inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
static inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(float a, double b) { return fmin((double)a, b); }
static inline double min(double a, float b) { return fmin(a, (double)b); }
static inline double max(float a, double b) { return fmax((double)a, b); }
static inline double max(double a, float b) { return fmax(a, (double)b); }
static inline int abs(int x) { return x < 0 ? -x : x; }
static inline long abs(long x) { return x < 0 ? -x : x; }
static inline long long abs(long long x) { return x < 0 ? -x : x; }
static inline float abs(float x) { return fabsf(x); }
static inline double abs(double x) { return fabs(x); }
static inline long long llabs(long long x) { return x < 0 ? -x : x; }
// ---- integers and bits ----
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
    return r;
}
static inline unsigned long long __brevll(unsigned long long x) { return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32)); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
static inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
static inline unsigned __sad(int a, int b, unsigned c) { return (unsigned)(a < b ? b - a : a - b) + c; }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned)(both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
    return r;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned s) { return (unsigned)((((unsigned long long)high << 32 | low) << (s & 31)) >> 32); }
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned s) { return (unsigned)(((unsigned long long)high << 32 | low) >> (s & 31)); }
static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++) c += (signed char)(a >> 8 * i) * (signed char)(b >> 8 * i);
    return c;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 4; i++) c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return c;
}
#define EMU_AS(name, To, From) \
    static inline To name(From x) { To y; __builtin_memcpy(&y, &x, sizeof(y)); return y; }
EMU_AS(__float_as_int, int, float) EMU_AS(__float_as_uint, unsigned, float) EMU_AS(__int_as_float, float, int) EMU_AS(__uint_as_float, float, unsigned)
EMU_AS(__double_as_longlong, long long, double) EMU_AS(__longlong_as_double, double, long long)
static inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
static inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
static inline double __hiloint2double(int high, int low) { return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low)); }
// Conversions saturate and send NaN to zero, as the instructions do.
template <class T> static inline T emu_to(double x, double low, double high)
{
    if (x != x) return 0;
    if (x <= low) return (T)low;
    if (x >= high) return sizeof(T) == 8 ? (T)-1 < 0 ? (T)0x7fffffffffffffffL : (T)-1 : (T)high;
    return (T)x;
}
#define EMU_ROUND(from, From, to, T, low, high) \
    static inline T __##from##2##to##_rn(From x) { return emu_to<T>(__builtin_nearbyint((double)x), low, high); } \
    static inline T __##from##2##to##_rz(From x) { return emu_to<T>(__builtin_trunc((double)x), low, high); } \
    static inline T __##from##2##to##_rd(From x) { return emu_to<T>(__builtin_floor((double)x), low, high); } \
    static inline T __##from##2##to##_ru(From x) { return emu_to<T>(__builtin_ceil((double)x), low, high); }
EMU_ROUND(float, float, int, int, -2147483648.0, 2147483647.0)
EMU_ROUND(float, float, uint, unsigned, 0.0, 4294967295.0)
EMU_ROUND(float, float, ll, long long, -0x1p63, 0x1p63)
EMU_ROUND(float, float, ull, unsigned long long, 0.0, 0x1p64)
EMU_ROUND(double, double, int, int, -2147483648.0, 2147483647.0)
EMU_ROUND(double, double, uint, unsigned, 0.0, 4294967295.0)
EMU_ROUND(double, double, ll, long long, -0x1p63, 0x1p63)
EMU_ROUND(double, double, ull, unsigned long long, 0.0, 0x1p64)
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline float __ull2float_rn(unsigned long long x) { return (float)x; }
static inline double __int2double_rn(int x) { return x; }
static inline double __uint2double_rn(unsigned x) { return x; }
static inline double __ll2double_rn(long long x) { return (double)x; }
static inline double __ull2double_rn(unsigned long long x) { return (double)x; }
static inline float __double2float_rn(double x) { return (float)x; }
