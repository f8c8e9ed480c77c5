// From stored images to what a network likes; Philox says where and how much, with the bits of every other kernel set.
//
// Stored images are canonical, (samples, channels, height, width); the grid's y is the sample where a block works on one.
#include "random.cuh"
#include "reduce.cuh"

// y = a window of every image with `pad` zeros around it, flipped or not, at random; its middle where counters is null.
// U is any type of the elements' size, all bits 0 being their 0.
template <class U>
__global__ void window(
    const U* x, const unsigned* counters, U* y, unsigned node, int channels, int height, int width, int rows,
    int columns, int pad, int flips) {
    __shared__ int top, left, flip;
    if (threadIdx.x == 0) {  // one draw for all of the block
        top = (height - rows) / 2;
        left = (width - columns) / 2;
        flip = 0;
        if (counters) {
            const Words w = draw(counters + 4 * blockIdx.y, 0, node);
            top = place(w.word[0], height + 2 * pad - rows + 1) - pad;
            left = place(w.word[1], width + 2 * pad - columns + 1) - pad;
            flip = flips && w.word[2] >> 31;
        }
    }
    __syncthreads();
    const U* image = x + (long long)blockIdx.y * channels * height * width;
    U* target = y + (long long)blockIdx.y * channels * rows * columns;
    each(channels * rows * columns, 1, [&](long long e) {
        const int at = int(e) % columns, line = int(e) / columns;
        const int row = line % rows + top, column = (flip ? columns - 1 - at : at) + left;
        const bool inside = row >= 0 && row < height && column >= 0 && column < width;
        target[e] = inside ? image[(line / rows * height + row) * width + column] : U(0);
    });
}

// y = x with a square of zeros at random; `last`: whether channels are. U as of window.
template <class U>
__global__ void cutout(
    const U* x, const unsigned* counters, U* y, unsigned node, int length, int channels, int height, int width, int last) {
    __shared__ int top, left;
    if (threadIdx.x == 0) {
        const Words w = draw(counters + 4 * blockIdx.y, 0, node);
        top = place(w.word[0], height) - length / 2;
        left = place(w.word[1], width) - length / 2;
    }
    __syncthreads();
    const long long image = (long long)blockIdx.y * channels * height * width;
    each(channels * height * width, 1, [&](long long e) {
        const int position = last ? int(e) / channels : int(e) % (height * width);
        const int row = position / width, column = position % width;
        const bool cut = row >= top && row < top + length && column >= left && column < left + length;
        y[image + e] = cut ? U(0) : x[image + e];
    });
}

// [max(0, 1 - spread), 1 + spread], what a word says of it.
__device__ inline double factor(double spread, unsigned word) {
    const double least = fmax(0.0, 1 - spread);
    return least + (1 + spread - least) * (word * (1.0 / 4294967296.0));
}

struct Jitter { double brightness, contrast, saturation; float limit; int limited; };

// To [0, limit] where there is one; NaN stays.
__device__ inline float clipped(float x, const Jitter& j) {
    if (!j.limited) return x;
    return x < 0 ? 0 : x > j.limit ? j.limit : x;
}

__device__ inline double grey_weight(int channel, int channels) {  // mpibow.ops.colour.LUMA
    return channels != 3 ? 1.0 / channels : channel == 0 ? 0.299 : channel == 1 ? 0.587 : 0.114;
}

// y = x with a brightness, contrast and saturation of its own; a block takes an image. See mpibow.ops.colour.
template <class S, class T>
__global__ void __launch_bounds__(THREADS) jitter(
    const S* x, const unsigned* counters, T* y, unsigned node, Jitter j, int channels, int size) {
    const Words w = draw(counters + 4 * blockIdx.y, 0, node);
    const S* image = x + (long long)blockIdx.y * channels * size;
    T* target = y + (long long)blockIdx.y * channels * size;
    const float light = float(factor(j.brightness, w.word[0]));
    const double contrast = factor(j.contrast, w.word[1]), saturation = factor(j.saturation, w.word[2]);
    const float slope = float(contrast), colour = float(saturation), rest = float(1 - saturation);
    float shift = 0;
    if (j.contrast != 0) {  // the mean grey of what brightness left; of uint8 the sums are exact
        double grey = 0;
        for (int c = 0; c < channels; c++) {
            double sum = 0;
            for (int i = threadIdx.x; i < size; i += THREADS) sum += clipped(to<float>(image[c * size + i]) * light, j);
            grey += grey_weight(c, channels) * block_sum(sum);
        }
        shift = float((1 - contrast) * (grey / size));
    }
    const auto toned = [&](int i) {
        const float lit = clipped(to<float>(image[i]) * light, j);
        return j.contrast != 0 ? clipped(lit * slope + shift, j) : lit;
    };
    for (int i = threadIdx.x; i < size; i += THREADS) {
        const float grey =
            j.saturation != 0 ? toned(i) * 0.299f + toned(size + i) * 0.587f + toned(2 * size + i) * 0.114f : 0;
#pragma unroll 1
        for (int c = 0; c < channels; c++) {
            const float value = toned(c * size + i);
            target[c * size + i] = to<T>(j.saturation != 0 ? clipped(value * colour + grey * rest, j) : value);
        }
    }
}

// y = (x - mean) scale, scale one a channel, mean as well or, where `each_value`, one for every value of a sample.
// `last`: whether y is to have its channels last; positions are those of an image, n counts all elements.
template <class S, class T>
__global__ void normalise(
    const S* x, T* y, const float* mean, const float* scale, int channels, int positions, int each_value, int last,
    long long n) {
    each(n, 1, [&](long long e) {
        const int size = channels * positions, value = int(e % size);
        const int c = last ? value % channels : value / positions;
        const int at = last ? c * positions + value / channels : value;  // of x
        const float pixel = to<float>(x[e - value + at]);
        y[e] = to<T>((pixel - mean[each_value ? at : c]) * scale[c]);
    });
}

// y[n] = table[w[0] >> 20], w the sample's block.
__global__ void mix_shares(const unsigned* counters, const float* table, float* y, unsigned node, int n) {
    each(n, 1, [&](long long i) { y[i] = table[draw(counters + 4 * i, 0, node).word[0] >> 20]; });
}

// y[n] = x[m] + share[n] (x[n] - x[m]) with m the next of the same `batch` samples, the first for the last.
template <class T>
__global__ void mix(const T* x, const float* share, T* y, int features, int batch, long long n) {
    each(n, 1, [&](long long e) {
        const int row = int(e / features);
        const long long next = e + (row % batch == batch - 1 ? 1 - batch : 1) * (long long)features;
        const float other = to<float>(x[next]);
        y[e] = to<T>((to<float>(x[e]) - other) * share[row] + other);
    });
}

template <class L> __global__ void one_hot(const L* labels, float* y, int classes, long long n) {
    each(n, 1, [&](long long e) { y[e] = labels[e / classes] == e % classes; });
}
