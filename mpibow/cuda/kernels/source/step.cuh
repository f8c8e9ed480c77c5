// The numbers of an iteration, which passes over flat arrays read from device memory. mpibow.cuda.kernels.flat says the same.
#pragma once

struct Step {
    float rate, alpha, gain, scale, pull, centre_momentum, attention;
    int begin;
};
