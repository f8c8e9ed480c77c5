"""Programs of PyTorch's operators (ATen) as nets: the counterpart of each operator. PyTorch itself is not imported."""
