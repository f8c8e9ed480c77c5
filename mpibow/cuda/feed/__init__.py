"""Slots in a GPU's memory, filled while learners compute, and whole data sets there."""
