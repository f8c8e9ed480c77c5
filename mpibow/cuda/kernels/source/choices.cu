// Operators of one element whose first input or whose output is of integers.
#include "pointwise.cuh"

template <class C, class T>
__global__ void chosen(
    const C* x0, const T* x1, const T* x2, const T* x3, T* y0, T* y1, float s0, float s1, long long n) {
    elements<Value>(x0, x1, x2, x3, y0, y1, s0, s1, n);
}

template <class C, class T>
__global__ void chosen_back(
    const C* x0, const T* x1, const T* x2, const T* x3, T* y0, T* y1, float s0, float s1, long long n) {
    elements<Gradient>(x0, x1, x2, x3, y0, y1, s0, s1, n);
}

template <class T, class D>
__global__ void counted(
    const T* x0, const T* x1, const T* x2, const T* x3, D* y0, D* y1, float s0, float s1, long long n) {
    elements<Value>(x0, x1, x2, x3, y0, y1, s0, s1, n);
}
