"""Measurements: README.md has a line for each command."""
