"""Metrics of an evaluation: sums of every batch, which add up over batches and ranks, and a number from their total."""
