"""From a run's parts to a snapshot, and back: the one place that knows what a checkpoint must hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mpibow.data.timeline import Change, Timeline, fixed
from mpibow.errors import CheckpointError
from mpibow.graph.graph import Array
from mpibow.graph.layout import Layout, repack
from mpibow.graph.plan import Plan
from mpibow.learn.replica import Replicas
from mpibow.run.checkpoint import Snapshot, read_arrays
from mpibow.sync.rule import Rule, RuleState

# What is stored in the canonical layout, so that a run may go on with kernels that want another.
FLAT = {"weights", "momenta", "mean", "previous", "common", "pending"}


def snapshot(
    header: Mapping[str, Any], plan: Plan, timeline: Timeline, iteration: int, replicas: Replicas, rule: Rule,
    statistics: Array, tally: Array, inputs: Mapping[str, Array], scale: Array | None = None,
) -> Snapshot:  # fmt: skip
    """The run before `iteration`, with `header`'s entries beside what is needed here; nothing may be under way.

    `statistics` (statistics.size,) are the centre's, `inputs` what an evaluation must know of the training data.
    """
    state, host = rule.state(), rule.flat.host
    own = {
        "weights": host(replicas.weights),
        "momenta": host(replicas.momenta),
        "statistics": host(replicas.statistics),
        "tally": tally,
        **({} if scale is None else {"scale": scale}),
    }
    own |= {key: host(array) for key, array in state.own.items()}
    shared = {key: host(array) for key, array in state.common.items()}
    stored, lies = plan.layout.canonical(), plan.layout
    entries = {
        **header,
        "iteration": iteration,
        "position": timeline.position(iteration),
        "batch_size": timeline.batch,
        "timeline": [asdict(change) for change in timeline.changes],
        "layout": stored.digest(),
        "rule": dict(state.numbers),
    }
    common, own = (
        {key: repack(array, lies, stored) if key in FLAT else array for key, array in arrays.items()}
        for arrays in (shared, own)
    )
    return Snapshot(entries, named(plan, host(rule.centre), statistics), common, own, inputs)


def named(plan: Plan, centre: Array, statistics: Array) -> dict[str, Array]:
    """Weights and statistics by name, in their own shapes."""
    return plan.layout.unpacked(centre) | plan.statistics.unpacked(statistics)


def check_fits(path: Path, header: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raises CheckpointError naming the first thing in which the checkpoint and this run differ."""
    for key, value in expected.items():
        if key == "layout" and header.get(key) != value:
            raise CheckpointError(
                f"{path}: was made with another model, its weights have other names or shapes; "
                "resume with the same config, or start anew without --resume"
            )
        if header.get(key) != value:
            raise CheckpointError(
                f"{path}: was made with {key} {header.get(key)}, this run has {value}; "
                "resume with the same config, or start anew without --resume"
            )


def timeline_of(header: Mapping[str, Any], started: list[Any], first: Timeline) -> Timeline:
    """The timeline to go on with: the checkpoint's own where the run was `started` alike, else `first` from here on.

    A replay's checkpoint has no changes to come: `first` has them.
    """
    if header["started"] == started and header["batch_size"] == first.batch:
        changes = (
            Change(c["iteration"], c["position"], tuple(c["counts"]), c.get("execution", ""))
            for c in header["timeline"]
        )
        return Timeline(first.batch, tuple(changes)).followed(first)
    now = first.change(header["iteration"])
    return fixed(first.batch, now.counts, header["iteration"], header["position"], now.execution).followed(first)


def read_centre(path: Path, plan: Plan) -> tuple[Array, Array]:
    """The centre of a checkpoint as two flat arrays: weights (layout.size,) and statistics (statistics.size,)."""
    return from_named(read_arrays(path, "centre"), plan, str(path))


def from_named(stored: Mapping[str, Array], plan: Plan, path: str) -> tuple[Array, Array]:
    """The inverse of `named`. Raises CheckpointError, about `path`, where names or shapes are another model's."""
    shapes = {span.name: span.shape for layout in (plan.layout, plan.statistics) for span in layout.spans}
    if {name: array.shape for name, array in stored.items()} != shapes:
        raise CheckpointError(f"{path}: holds the weights of another model")
    dtype = plan.weight_dtype
    return plan.layout.packed(stored, dtype), plan.statistics.packed(stored, dtype)


def restore(
    path: Path, header: Mapping[str, Any], rank: int, centre: Array, replicas: Replicas, rule: Rule, layout: Layout
) -> tuple[Array, Array | None]:
    """Continues where the checkpoint was made, bit for bit: replicas, rule and centre as they were.

    What was not sent, as the synchroniser's book wrote it, and the loss's scale, if any.
    """
    own, common = (
        {key: repack(array, layout.canonical(), layout) if key in FLAT else array for key, array in arrays.items()}
        for arrays in (read_arrays(path, f"rank-{rank}"), read_arrays(path, "common"))
    )
    put = rule.flat.put
    put(replicas.weights, own.pop("weights"))
    put(replicas.momenta, own.pop("momenta"))
    put(replicas.statistics, own.pop("statistics"))
    tally, scale = own.pop("tally"), own.pop("scale", None)
    rule.load(centre, RuleState(common, own, header["rule"]))
    return tally, scale
