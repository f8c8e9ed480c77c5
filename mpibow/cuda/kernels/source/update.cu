// A local step and a rule's `send`, by the formulas of the run. mpibow.kernels.numpy.flat defines the pass.
#include <sending.cuh>  // of this run: mpibow.cuda.kernels.formulas writes it

#include "rows.cuh"

static_assert(Send::INPUTS <= 5, "a rule's send takes three arrays");

// w_i, summand_i <- send(w_i, u_i, arrays); total <- (begin ? 0 : total) + sum of summands, squares[chunk] of |u|^2 alike.
// total may be null where nothing is sent; norms (k,) may be null: |g_i|^2, not finite where a row's step is to be left out.
__global__ void __launch_bounds__(THREADS) update(
    float* weights, float* s0, float* s1, float* s2, float* s3, const float* gradients, float* total, double* squares,
    const float* a0, const float* a1, const float* a2, const Step* step, const float* scalars, const Span* spans,
    const double* norms, long long size, long long stride, long long kept, int k, int groups) {
    float* const states[] = {s0, s1, s2, s3};
    const float* const arrays[] = {a0, a1, a2};
    const Step s = *step;
    double square = 0;
    each_of_chunk(size, [&](long long i) {
        float sum[V] = {}, a[3][V];
        const float* own = scalars + group_of(spans, i) * SCALARS;
        if (total && !s.begin) load(total, i, size, sum);
        for (int m = 0; m < Send::INPUTS - 2; m++) load(arrays[m], i, size, a[m]);
        for (int row = 0; row < k; row++) {
            float w[V], u[V];
            load(weights + row * stride, i, size, w);
            row_steps(w, states, row * kept, gradients + row * stride, i, size, own, norms && !is_finite(norms[row]), u);
            for (int n = 0; n < V; n++) {
                square += double(u[n]) * double(u[n]);
                float x[5] = {w[n], u[n]}, y[2] = {};
                for (int m = 0; m < Send::INPUTS - 2; m++) x[m + 2] = a[m][n];
                Send::of(x, s.numbers, y);
                w[n] = y[0];
                sum[n] = s.begin && row == 0 ? y[1] : sum[n] + y[1];
            }
            store(weights + row * stride, i, size, w);
            own += groups * SCALARS;
        }
        if (total) store(total, i, size, sum);
    });
    square = block_sum(square);
    if (threadIdx.x == 0) squares[blockIdx.x] = s.begin ? square : squares[blockIdx.x] + square;
}
