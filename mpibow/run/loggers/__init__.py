"""Loggers send a run's numbers to the programs in `log.to`, beside metrics.jsonl: one module for each program."""
