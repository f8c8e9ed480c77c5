// The types that kernels store, and how they become the float32 that all of them compute in.
#pragma once

struct half { unsigned short bits; };      // IEEE's binary16
struct bfloat16 { unsigned short bits; };  // the upper half of a float32

__device__ inline float infinite() { return __int_as_float(0x7f800000); }
__device__ inline float not_a_number() { return __int_as_float(0x7fc00000); }

#ifdef HOST
inline float widened(half x) { return widened_half(x); }
inline float widened(bfloat16 x) { return widened_bfloat16(x); }
inline void narrow(float x, half& y) { narrow_half(x, y); }
inline void narrow(float x, bfloat16& y) { narrow_bfloat16(x, y); }
#else
__device__ inline float widened(half x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ inline float widened(bfloat16 x) { return __uint_as_float(unsigned(x.bits) << 16); }
__device__ inline void narrow(float x, half& y) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
__device__ inline void narrow(float x, bfloat16& y) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
#endif

template <class T> __device__ float widened(T x) { return float(x); }
template <class T> __device__ void narrow(float x, T& y) { y = T(x); }

// x as a D: itself, or by way of float32, rounded to the nearest.
template <class D, class S> __device__ D to(S x) {
    D y;
    narrow(widened(x), y);
    return y;
}
template <> __device__ inline double to(double x) { return x; }
template <> __device__ inline unsigned short to(unsigned short x) { return x; }
template <> __device__ inline unsigned to(unsigned x) { return x; }

__device__ inline bool is_finite(double x) { return x - x == 0; }
