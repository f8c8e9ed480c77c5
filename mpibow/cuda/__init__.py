"""All that exists for NVIDIA GPUs."""
