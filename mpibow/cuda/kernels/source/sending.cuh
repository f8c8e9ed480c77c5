#pragma once

constexpr int STATES = 1, SCALARS = 3;

// heavy_ball
__device__ inline float stepped(float w_, float g_, float* states, const float* scalars) {
    float momenta_ = states[0];
    float rate_ = scalars[0];
    float decay_ = scalars[1];
    float momentum_ = scalars[2];
    g_ = ((decay_ != float(0.0)) ? (g_ + (decay_ * w_)) : g_);
    momenta_ = ((momentum_ * momenta_) + g_);
    momenta_ = ((fabsf(momenta_) < float(1e-30)) ? float(0.0) : momenta_);
    const float result0 = ((-rate_) * momenta_);
    const float result1 = momenta_;
    states[0] = result1;
    return result0;
}

// pull
struct Send {
    static constexpr int INPUTS = 3, RESULTS = 2;
    static __device__ void of(const float* x, const float* scalars, float* y) {
        float w_ = x[0];
        float u_ = x[1];
        float centre_ = x[2];
        float alpha_ = scalars[0];
        float pulled_ = ((alpha_ != float(0.0)) ? (u_ - (alpha_ * (w_ - centre_))) : u_);
        y[0] = (w_ + pulled_);
        y[1] = u_;
    }
};
