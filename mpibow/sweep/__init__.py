"""Runs of every combination of settings, kept as they finish: `python -m mpibow.sweep --help`."""
