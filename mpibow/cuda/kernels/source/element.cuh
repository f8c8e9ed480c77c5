#pragma once

// Silu_value
struct Value {
    static constexpr int INPUTS = 1, RESULTS = 1;
    static __device__ void of(const float* x, const float* scalars, float* y) {
        float x_ = x[0];
        y[0] = (x_ / (float(1.0) + expf((-x_))));
    }
};

// Silu_gradient
struct Gradient {
    static constexpr int INPUTS = 2, RESULTS = 1;
    static __device__ void of(const float* x, const float* scalars, float* y) {
        float x_ = x[0];
        float dy_ = x[1];
        float s_ = (float(1.0) / (float(1.0) + expf((-x_))));
        y[0] = ((dy_ * s_) * (float(1.0) + (x_ * (float(1.0) - s_))));
    }
};
