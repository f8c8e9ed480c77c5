"""Programs of PyTorch's operators (ATen) as nets: what each operator is here. PyTorch itself is not imported."""
