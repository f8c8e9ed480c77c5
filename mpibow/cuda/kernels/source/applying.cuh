#pragma once

constexpr int MOVES = 1;
// mean
struct Apply {
    static constexpr int INPUTS = 3, RESULTS = 2;
    static __device__ void of(const float* x, const float* scalars, float* y) {
        float w_ = x[0];
        float centre_ = x[1];
        float total_ = x[2];
        float extra_ = scalars[0];
        float whole_ = scalars[1];
        y[0] = ((extra_ != float(0.0)) ? (w_ + (extra_ * total_)) : w_);
        y[1] = (centre_ + (whole_ * total_));
    }
};
