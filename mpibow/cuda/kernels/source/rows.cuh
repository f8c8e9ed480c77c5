// A local step of packs of a row, by the formula of the run's optimiser, whose header is included before this one.
//
// A rank's k replicas are rows of weights and gradients, `stride` elements apart, and of states, `kept` apart; all are
// done in one launch, in row order. Every number that changes from one iteration to the next is read from device memory.
#pragma once
#include "chunk.cuh"
#include "step.cuh"

static_assert(STATES <= 4, "passes take four states");
constexpr int KEPT = STATES > 0 ? STATES : 1;

// Elements before `end`, and behind the span before, are of this group.
struct Span { long long end, group; };

__device__ inline long long group_of(const Span* spans, long long i) {
    while (spans->end <= i) spans++;
    return spans->group;
}

// g <- the steps of a pack of weights, whose states follow; `scalars` are the formula's.
__device__ inline void packs(const float (&w)[V], float (&g)[V], float (&states)[KEPT][V], const float* scalars) {
    float c[SCALARS > 0 ? SCALARS : 1];
    for (int m = 0; m < SCALARS; m++) c[m] = scalars[m];
    for (int n = 0; n < V; n++) {
        float own[KEPT];
        for (int m = 0; m < STATES; m++) own[m] = states[m][n];
        g[n] = stepped(w[n], g[n], own, c);
        for (int m = 0; m < STATES; m++) states[m][n] = own[m];
    }
}

// A row's pack of steps at element i, its states updated. A row whose gradient overflowed stands still.
__device__ inline void row_steps(
    const float (&w)[V], float* const (&states)[4], long long row, const float* gradients, long long i, long long size,
    const float* scalars, bool lost, float (&u)[V]) {
    float own[KEPT][V];
    for (int m = 0; m < STATES; m++) load(states[m] + row, i, size, own[m]);
    load(gradients, i, size, u);
    packs(w, u, own, scalars);
    for (int n = 0; lost && n < V; n++) u[n] = 0;
    for (int m = 0; m < STATES && !lost; m++) store(states[m] + row, i, size, own[m]);
}
