// A batch out of a data set that lies on the device whole.
#include "each.cuh"

// y[n] = table[s] and, where there are any, word[n] = words[s], s the sample that counters[n] is of: its words 2 and 3,
// the lower first. The grid's y is n; a row is `width` U, and there are `count`: a wrong number must not read elsewhere.
template <class U>
__global__ void gather(
    const U* table, const int* words, const unsigned* counters, U* y, int* word, long long width, long long count) {
    const unsigned* counter = counters + 4 * blockIdx.y;
    const unsigned long long s = counter[2] | (unsigned long long)counter[3] << 32;
    const long long row = s < (unsigned long long)count ? (long long)s : count - 1;
    each(width, 1, [&](long long e) { y[blockIdx.y * width + e] = table[row * width + e]; });
    if (words && blockIdx.x == 0 && threadIdx.x == 0) word[blockIdx.y] = words[row];
}
