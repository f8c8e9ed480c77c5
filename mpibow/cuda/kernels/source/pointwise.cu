// Operators of one element of arrays of one type.
#include "pointwise.cuh"

template <class T>
__global__ void value(
    const T* x0, const T* x1, const T* x2, const T* x3, T* y0, T* y1, float s0, float s1, long long n) {
    elements<Value>(x0, x1, x2, x3, y0, y1, s0, s1, n);
}

template <class T>
__global__ void gradient(
    const T* x0, const T* x1, const T* x2, const T* x3, T* y0, T* y1, float s0, float s1, long long n) {
    elements<Gradient>(x0, x1, x2, x3, y0, y1, s0, s1, n);
}
