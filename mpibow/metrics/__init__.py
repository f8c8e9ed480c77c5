"""All metrics by name: sums of every batch, which add up over batches and ranks, and a number from their total."""

from collections.abc import Mapping
from typing import Any

from .classes import F1, AccuracyMetric, Confusion, MeanIou, Perplexity, TopK
from .numbers import R2, Mae, Mse, Rmse

METRICS: Mapping[str, type[Any]] = {
    "accuracy": AccuracyMetric,
    "top_k": TopK,
    "perplexity": Perplexity,
    "f1": F1,
    "mean_iou": MeanIou,
    "confusion": Confusion,
    "mae": Mae,
    "mse": Mse,
    "rmse": Rmse,
    "r2": R2,
}
