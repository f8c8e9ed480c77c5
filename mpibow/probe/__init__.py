"""Short trials of a job before it is trained: which learning rates it takes, and whether the net learns at all."""
