"""Where a run's numbers go beside metrics.jsonl, as `log.to` says: one module for each program that shows them."""
