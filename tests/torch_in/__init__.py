"""Modules of PyTorch that become nets, and come back."""
