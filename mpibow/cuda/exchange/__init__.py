"""Averaging between GPUs: by NCCL, or by MPI with device arrays or through the host."""
