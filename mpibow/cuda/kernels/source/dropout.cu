// Dropout. Feature 4 b + i of a sample takes word i of Philox block b; the bits are those of every other kernel set.
#include "random.cuh"

// y = x times `scale` or 0, as bit i of bits(e, sample, b) says for feature 4 b + i, e being the block's number.
// Features are counted in the canonical order: f lies at f % positions * channels + f / positions, channels last; where
// channels is 1, as it is counted. `beside` samples, of as many replicas, have their channels side by side.
template <class T, class Bits>
__device__ void each_block(
    const T* x, T* y, float scale, int samples, int features, int channels, int beside, Bits bits) {
    const int blocks = (features + 3) / 4, positions = features / channels;
    each((long long)samples * blocks, 1, [&](long long e) {
        const int sample = int(e / blocks), b = int(e % blocks);
        const unsigned kept = bits(e, sample, b);
        const long long start = (long long)(sample / beside) * beside * features + sample % beside * channels;
        for (int i = 0; i < 4 && 4 * b + i < features; i++) {
            const int f = 4 * b + i;
            const long long at = start + (long long)(f % positions) * beside * channels + f / positions;
            y[at] = to<T>(to<float>(x[at]) * (kept >> i & 1 ? scale : 0.0f));
        }
    });
}

// kept (samples, blocks) <- which features stay, 4 bits a block: those whose word is at least `threshold`.
template <class T>
__global__ void dropout(
    const T* x, const unsigned* counters, T* y, unsigned char* kept, unsigned node, unsigned threshold, float scale,
    int samples, int features, int channels, int beside) {
    each_block(x, y, scale, samples, features, channels, beside, [&](long long e, int sample, int b) {
        const Words w = draw(counters + 4 * sample, b, node);
        unsigned bits = 0;
        for (int i = 0; i < 4; i++) bits |= unsigned(w.word[i] >= threshold) << i;
        kept[e] = (unsigned char)bits;
        return bits;
    });
}

template <class T>
__global__ void dropout_back(
    const T* dy, const unsigned char* kept, T* dx, float scale, int samples, int features, int channels,
    int beside) {
    each_block(dy, dx, scale, samples, features, channels, beside, [&](long long e, int, int) {
        return unsigned(kept[e]);
    });
}
