// Passes over flat arrays that make no local step: sums, means, limits. mpibow.kernels.numpy.flat defines them.
//
// A rank's k replicas are rows, `stride` elements apart; all are done in one launch, in row order. Every number that
// changes from one iteration to the next is read from device memory.
#include "chunk.cuh"
#include "step.cuh"

// mean <- the mean of the rows.
__global__ void rows_mean(const float* rows, float* mean, long long size, long long stride, int k) {
    each(size, V, [&](long long i) {
        float m[V];
        mean_of(rows, i, size, stride, k, m);
        store(mean, i, size, m);
    });
}

// total <- the sum of the rows of gradients; norms (k,) may be null: |g_i|^2, not finite where a row is left out.
__global__ void gradient_sum(
    const float* gradients, float* total, const double* norms, long long size, long long stride, int k) {
    each(size, V, [&](long long i) {
        float sum[V] = {};
        bool none = true;
        for (int row = 0; row < k; row++) {
            if (norms && !is_finite(norms[row])) continue;
            float g[V];
            load(gradients + row * stride, i, size, g);
            for (int n = 0; n < V; n++) sum[n] = none ? g[n] : sum[n] + g[n];
            none = false;
        }
        store(total, i, size, sum);
    });
}

// squares[row, chunk] <- |x[row, chunk]|^2; the grid is (chunks, rows). Not finite where an element is not.
__global__ void __launch_bounds__(THREADS) chunk_squares(
    const float* x, double* squares, long long size, long long stride) {
    double square = 0;
    each_of_chunk(size, [&](long long i) {
        float a[V];
        load(x + blockIdx.y * stride, i, size, a);
        for (int n = 0; n < V; n++) square += double(a[n]) * double(a[n]);
    });
    square = block_sum(square);
    if (threadIdx.x == 0) squares[(long long)blockIdx.y * gridDim.x + blockIdx.x] = square;
}

// out[row, j] <- the sum over i of parts[row, i, j], j < width; the grid is (width, rows).
template <class D> __global__ void __launch_bounds__(THREADS) sum_parts(const double* parts, D* out, int count, int width) {
    const double* mine = parts + (long long)blockIdx.y * count * width + blockIdx.x;
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += mine[(long long)i * width];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.y * width + blockIdx.x] = D(sum);
}

constexpr int CERTAIN = 80; // iterations after which the measured gain is taken whole: as in mpibow/sync/gain.py

struct Gain {
    double n1, n2, weight;
    int count, measured;  // measured: whether the gain follows the averages; else it is `fixed`
    float fixed, gain;
};

// mpibow.sync.gain on the device, by one thread: squares = (sum |u_i|^2, |sum u_i|^2) of k learners -> state.gain, and
// common (2,) <- (gain - 1) / k, which is what the common step is of the sum of the steps, and gain / k, what the mean
// moves by with it. `sent` may be null: where ranks have added up sum |u_i|^2, which then stands for squares[0].
__global__ void follow_gain(
    const double* squares, const float* sent, const Step* step, Gain* state, float* common, int k) {
    Gain g = *state;
    const double rate = step->rate, square = rate * rate, n1 = (sent ? double(*sent) : squares[0]) / k / square;
    const double n2 = squares[1] / ((double)k * k) / square, share = k < 1000 ? k / 1000.0 : 1.0;
    if (k > 1 && square != 0 && is_finite(n1) && is_finite(n2)) {
        g.n1 = (1 - share) * g.n1 + share * n1;
        g.n2 = (1 - share) * g.n2 + share * n2;
        g.weight = (1 - share) * g.weight + share;
        g.count = min(g.count + 1, CERTAIN);
    }
    double gain = 1;
    if (k > 1 && g.weight != 0) {
        const double a = g.n1 / g.weight, b = g.n2 / g.weight;
        const double noise = fmax(double(k) / (k - 1) * (a - b), 0.0), signal = fmax(b - noise / k, 0.0);
        const double measured = (noise + signal) / (noise / k + signal);
        if (is_finite(measured)) gain = 1 + (fmin(fmax(measured, 1.0), double(k)) - 1) * g.count / CERTAIN;
    }
    g.gain = float(g.measured ? gain : fmin(fmax(double(g.fixed), 1.0), double(k)));
    common[0] = (g.gain - 1) / k;
    common[1] = float(1.0 / k + double(common[0]));
    *state = g;
}

// Elements of a row of gradients to [-limit, limit]; NaN stays.
__global__ void clamp(float* x, float limit, long long size) {
    each(size, V, [&](long long i) {
        float a[V];
        load(x, i, size, a);
        for (int n = 0; n < V; n++) a[n] = a[n] > limit ? limit : a[n] < -limit ? -limit : a[n];
        store(x, i, size, a);
    });
}

// x, whose |x|^2 is *norm, to the length `limit` where it is longer.
__global__ void shorten(float* x, const double* norm, float limit, long long size) {
    if (!is_finite(*norm) || *norm <= double(limit) * double(limit)) return;
    const float scale = float(double(limit) / sqrt(*norm));
    each(size, V, [&](long long i) {
        float a[V];
        load(x, i, size, a);
        for (int n = 0; n < V; n++) a[n] = a[n] * scale;
        store(x, i, size, a);
    });
}

// report (3,) <- the sums of a learner's losses and hits (count,), and its *norm; not finite where the loss is not, so
// that its step is left out. hits may be null. `stride` are the elements from one of its samples to the next.
__global__ void __launch_bounds__(THREADS) report_batch(
    const float* loss, const float* hits, double* norm, double* report, int count, int stride) {
    double losses = 0, found = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        losses += loss[i * stride];
        if (hits) found += hits[i * stride];
    }
    losses = block_sum(losses);
    found = block_sum(found);
    if (threadIdx.x == 0) {
        if (!is_finite(losses)) *norm = losses;
        report[0] = losses;
        report[1] = found;
        report[2] = *norm;
    }
}

// unsent (3,) += (step->attention, and the losses and hits of the learners whose reports (k, 3) are finite); where tail
// is not null it goes there, to be sent, and unsent is 0 again. By one thread.
__global__ void enter_reports(const double* reports, const Step* step, double* unsent, float* tail, int k) {
    unsent[0] += step->attention;
    for (int row = 0; row < k; row++) {
        if (!is_finite(reports[3 * row + 2])) continue;
        unsent[1] += reports[3 * row];
        unsent[2] += reports[3 * row + 1];
    }
    for (int i = 0; tail && i < 3; i++) {
        tail[i] = float(unsent[i]);
        unsent[i] = 0;
    }
}

struct LossScale {
    float scale, inverse;
    int good, interval;  // iterations without overflow so far, and after how many the scale is doubled
};

// Halves the scale of the loss where a row's gradient overflowed, doubles it after `interval` iterations where none did.
__global__ void follow_scale(const double* norms, LossScale* state, int k) {
    LossScale s = *state;
    bool good = true;
    for (int row = 0; row < k; row++) good = good && is_finite(norms[row]);
    s.good = good ? s.good + 1 : 0;
    if (!good) s.scale = fmaxf(s.scale * 0.5f, 1.0f);
    if (s.good == s.interval && s.scale < 16777216.0f) s.scale *= 2;
    if (s.good == s.interval) s.good = 0;
    s.inverse = 1 / s.scale;
    *state = s;
}

// Where the 16 elements of a block of a replica's row lie for several replicas at once: from `place` on, `pitch` apart
// from replica to replica; `count` of them are no padding.
struct Block { long long place, pitch, count; };
constexpr int BLOCK = 16;

// body(element of a row, its block, the element's number in it).
template <class Body> __device__ void each_of_blocks(const Block* blocks, long long size, Body body) {
    each(size, 1, [&](long long i) {
        const Block b = blocks[i / BLOCK];
        if (i % BLOCK < b.count) body(i, b, i % BLOCK);
    });
}

// wide <- the rows' elements, replica beside replica.
__global__ void join_rows(
    const float* rows, float* wide, const Block* blocks, long long size, long long stride, int k) {
    each_of_blocks(blocks, size, [&](long long i, const Block& b, long long n) {
        for (int row = 0; row < k; row++) wide[b.place + row * b.pitch + n] = rows[row * stride + i];
    });
}

// rows <- what lies for them in wide.
__global__ void part_rows(
    const float* wide, float* rows, const Block* blocks, long long size, long long stride, int k) {
    each_of_blocks(blocks, size, [&](long long i, const Block& b, long long n) {
        for (int row = 0; row < k; row++) rows[row * stride + i] = wide[b.place + row * b.pitch + n];
    });
}
