// A rule's `apply`, by the formula of the run. mpibow.kernels.numpy.flat defines the pass; sums of squares are the gain's.
#include <applying.cuh>  // of this run: mpibow.cuda.kernels.formulas writes it

#include "chunk.cuh"
#include "step.cuh"

constexpr int KEPT = Apply::RESULTS - MOVES;  // the rule's arrays
static_assert(Apply::INPUTS == MOVES + KEPT + 1 && KEPT <= 3, "a rule's apply takes w, three arrays and total");

// w_i, arrays <- apply(w_i, arrays, total), for every row i where it has w; total may be null, where nothing was received.
__global__ void apply(
    float* weights, float* a0, float* a1, float* a2, const float* total, const Step* step, long long size, long long stride,
    int k) {
    float* const arrays[] = {a0, a1, a2};
    const Step s = *step;
    each(size, V, [&](long long i) {
        float sum[V] = {}, a[3][V], w[V] = {};
        if (total) load(total, i, size, sum);
        for (int m = 0; m < KEPT; m++) load(arrays[m], i, size, a[m]);
        auto of = [&](int n, float* y) {
            float x[5] = {w[n]};
            for (int m = 0; m < KEPT; m++) x[MOVES + m] = a[m][n];
            x[MOVES + KEPT] = sum[n];
            Apply::of(x, s.numbers, y);
        };
        for (int row = 0; MOVES && row < k; row++) {
            float y[4];
            load(weights + row * stride, i, size, w);
            for (int n = 0; n < V; n++) of(n, y), w[n] = y[0];
            store(weights + row * stride, i, size, w);
        }
        for (int n = 0; n < V; n++) {
            float y[4];
            of(n, y);
            for (int m = 0; m < KEPT; m++) a[m][n] = y[MOVES + m];
        }
        for (int m = 0; m < KEPT; m++) store(arrays[m], i, size, a[m]);
    });
}
