"""Kernels for NVIDIA's GPUs: cuDNN's graphs and mpibow's own, captured into CUDA graphs."""
