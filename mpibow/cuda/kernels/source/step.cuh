// The numbers of an iteration, which passes over flat arrays read from device memory. mpibow.cuda.kernels.flat says the same.
#pragma once

struct Step {
    float rate, alpha, gain, scale, attention;
    int begin;
    float numbers[8];  // of a rule's formula, in its order
};
