// Philox4x32-10 (Salmon et al., SC 2011): the bits of mpibow.kernels.philox.
#pragma once
#include "each.cuh"

struct Words { unsigned word[4]; };

__device__ inline Words philox(unsigned c0, unsigned c1, unsigned c2, unsigned c3, unsigned k0, unsigned k1) {
    for (int turn = 0; turn < 10; turn++) {
        const unsigned long long a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
        c0 = unsigned(b >> 32) ^ c1 ^ k0;
        c1 = unsigned(b);
        c2 = unsigned(a >> 32) ^ c3 ^ k1;
        c3 = unsigned(a);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// Block `block` of a node's numbers for the sample whose counter (seed, epoch, low, high) is given.
__device__ inline Words draw(const unsigned* counter, unsigned block, unsigned node) {
    return philox(block, counter[2], counter[3], counter[1], counter[0], node);
}

// One of `places`, all equally likely.
__device__ inline int place(unsigned word, int places) { return int((unsigned long long)word * unsigned(places) >> 32); }
