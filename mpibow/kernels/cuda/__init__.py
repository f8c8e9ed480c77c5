"""mpibow's kernels for NVIDIA GPUs."""
