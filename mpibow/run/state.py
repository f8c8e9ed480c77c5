"""From a run's parts to a snapshot, and back: the one place that defines the content of a checkpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpibow.comm.communicator import Call
from mpibow.data import Timeline
from mpibow.errors import CheckpointError
from mpibow.graph import Array, ArraysByName, DType, Layout, Plan
from mpibow.graph.layout import repack
from mpibow.kernels import FlatKernels
from mpibow.learn.replica import Replicas
from mpibow.sync import Engine, RuleNumbers, RuleState
from mpibow.sync.outbox import TAIL, Book
from mpibow.system import JsonObject

from .checkpoint import Snapshot, read_arrays


@dataclass(frozen=True)
class State:
    """The content of a checkpoint: one rank's replicas in the layout of `plan`, their averaging, and its book."""

    rank: int
    plan: Plan
    replicas: Replicas
    engine: Engine
    flat: FlatKernels
    book: Book

    @property
    def centre(self) -> Array:
        """The centre (layout.size,), with frozen weights."""
        return self.replicas.whole(self.engine.centre)

    def snapshot(
        self,
        header: JsonObject,
        timeline: Timeline,
        iteration: int,
        statistics: Array,
        inputs: ArraysByName,
        average: Array | None,
    ) -> Snapshot:
        """The run before `iteration`, with the entries of `header` besides its own; nothing may be under way.

        `statistics` (statistics.size,) are the centre's, `inputs` the training data's arrays for an evaluation,
        `average` (layout.size,) the centre's, which has the centre's statistics.
        """
        plan = self.plan
        replicas = self.replicas
        engine = self.engine
        host = self.flat.host
        state = engine.state()
        own = {
            "weights": host(replicas.all_rows(replicas.count)[0]),
            "statistics": host(replicas.statistics),
            **self.book.state(),
            **{name: replicas.state(name) for name in replicas.names},
            **{
                name: counts[:, 0] if counts.shape[1] == 1 else counts  # (k,) where there is one part, else (k, parts)
                for name, counts in (("updates", replicas.updates), ("seen", replicas.seen))
                if replicas.counts
            },
        }
        assert not own.keys() & engine.arrays.keys(), "a rule's array is called like the learners'"
        whole = host(self.centre)
        own |= {key: engine.arrays[key].wider(host(array), whole) for key, array in state.own.items()}
        shared = {key: engine.arrays[key].wider(host(array), whole) for key, array in state.shared.items()}
        stored = plan.layout.canonical()
        lies = plan.layout
        entries = {
            **header,
            "iteration": iteration,
            "position": timeline.position(iteration),
            "batch_size": timeline.batch,
            "timeline": [asdict(change) for change in timeline.changes],
            "layout": stored.digest(),
            "rule": asdict(state.numbers),
        }
        common, own = (self._repacked(arrays, lies, stored) for arrays in (shared, own))
        files: dict[str, ArraysByName] = {"centre": plan.unpacked(whole, statistics), "common": common}
        files |= {"input": inputs} if inputs else {}
        files |= {} if average is None else {"average": plan.unpacked(average, statistics)}
        return Snapshot(entries, files, own)

    def restore(self, path: Path, numbers: RuleNumbers, centre: Array, states: Sequence[str]) -> None:
        """Continues where the checkpoint was made, bit for bit: replicas, rule and centre as they were.

        `numbers` are the rule's, which has begun with these replicas; `states` are the replicas' that the checkpoint
        has. Raises CheckpointError where arrays are not those of such a run.
        """
        replicas = self.replicas
        layout = self.plan.layout
        put = self.flat.put
        k = replicas.count
        own, common = (self._repacked(arrays, layout.canonical(), layout) for arrays in self._stored(path, states))
        put(replicas.all_rows(k)[0], own.pop("weights"))
        for name in replicas.names:
            replicas.put_state(name, own.pop(name, 0))
        for name, counts in (("updates", replicas.updates), ("seen", replicas.seen)):
            counts[:] = own.pop(name, np.zeros(counts.shape)).reshape(k, -1)
        put(replicas.statistics, own.pop("statistics"))
        book = own.pop("tally"), own.pop("scale", None)
        common, own = (
            {key: self.engine.arrays[key].narrower(array, replicas.size) for key, array in arrays.items()}
            for arrays in (common, own)
        )
        self.engine.load(centre[: replicas.size], RuleState(common, own, numbers))
        self.book.load(*book)

    def grow(self, size: int, k: int) -> None:
        """Elements [0, size) of the replicas are trained from here on, by k learners. Nothing may be under way."""
        centre = self.flat.host(self.centre).copy()
        self.replicas.train(size)
        self.engine.grow(centre, size, k)

    def _stored(self, path: Path, states: Sequence[str]) -> tuple[dict[str, Array], dict[str, Array]]:
        """The arrays of the rank's file and of all ranks', as they are to be. Raises CheckpointError."""
        replicas = self.replicas
        engine = self.engine
        mine = f"rank-{self.rank}"
        k = replicas.count
        size = self.plan.layout.canonical().size
        dtype = np.dtype(self.plan.weight_dtype)
        each = Form((k, size), dtype)
        double = np.dtype(np.float64)
        parts = len(replicas.parts)
        forms = {"weights": each, "statistics": Form(replicas.statistics.shape, dtype), "tally": Form((None,), double)}
        forms |= {**dict.fromkeys(states, each), "scale": Form((2,), double, needed=False)}
        if replicas.counts and states:
            counted = Form((k,) if parts == 1 else (k, parts), np.dtype(np.int64))
            forms |= {"updates": counted, "seen": counted}
        own = _read(path, mine, forms | self._forms("each", size, dtype))
        common = _read(path, "common", self._forms("all", size, dtype))
        for name, arrays in (("common", common), (mine, own)):
            for key in arrays.keys() & engine.arrays.keys():
                if (beside := engine.arrays[key].beside) and beside not in arrays:
                    file = path / f"{name}.safetensors"
                    raise CheckpointError(f"{file}: {beside}: must be there beside {key}, got nothing")
        file = path / f"{mine}.safetensors"
        if len(own["tally"]) not in (3, 3 + 3 * k):
            raise CheckpointError(f"{file}: tally: must be [3] or [{3 + 3 * k}], got {list(own['tally'].shape)}")
        for name in ("updates", "seen"):
            if name in own and own[name].min() < 0:
                raise CheckpointError(f"{file}: {name}: must be at least 0, got {own[name].tolist()}")
        return own, common

    def statistics(self, call: Call, k: int) -> Array:
        """The centre's statistics: the mean over all k learners, or a frozen batch norm's as they are. Collective."""
        rows = self.flat.host(self.replicas.statistics)
        for i in self.book.spoilt():  # before an update sets them back
            rows[i] = self.replicas.first_statistics
        mean: Array = rows.sum(axis=0)
        call(lambda comm: comm.allreduce(mean))
        mean *= mean.dtype.type(1.0 / k)
        for span in self.plan.statistics.spans:
            if not span.weight.trained:
                mean[span.part] = rows[0, span.part]
        return mean

    def _repacked(self, arrays: ArraysByName, source: Layout, target: Layout) -> dict[str, Array]:
        """Moves arrays of weights' elements to the layout `target`; others stay as they are."""
        rules = (name for name, each in self.engine.arrays.items() if each.form != "numbers")
        flat = {"weights", *self.replicas.names, *rules}
        return {name: repack(array, source, target) if name in flat else array for name, array in arrays.items()}

    def _forms(self, ranks: str, size: int, dtype: DType) -> dict[str, "Form"]:
        """The arrays that the rule, which has just begun, declares for a file: needed are those that it has now."""
        whole = Form((size,), dtype)
        state = self.engine.state()
        sent = Form((size + TAIL,), dtype)
        forms = {"weights": whole, "steps": whole, "sent": sent, "numbers": Form((None,), np.dtype(np.float64))}
        return {
            name: forms[stored.form]._replace(needed=name in state.shared or name in state.own)
            for name, stored in self.engine.arrays.items()
            if stored.ranks == ranks
        }


def read_centre(path: Path, plan: Plan) -> tuple[Array, Array]:
    """The centre of a checkpoint as two flat arrays: weights (layout.size,) and statistics (statistics.size,)."""
    return plan.packed(read_arrays(path, "centre"), str(path))


class Form(NamedTuple):
    """The shape and dtype that an array must have; None is any length but 0."""

    shape: tuple[int | None, ...]
    dtype: DType
    needed: bool = True

    def fits(self, array: Array) -> bool:
        alike = all(n == m or (m is None and n > 0) for n, m in zip(array.shape, self.shape, strict=False))
        return array.dtype == self.dtype and array.ndim == len(self.shape) and alike


def _read(path: Path, name: str, forms: Mapping[str, Form]) -> dict[str, Array]:
    """The arrays of these forms in one file of a checkpoint; the others in it are a newer version's."""
    stored = read_arrays(path, name)
    found = {}
    for key, form in forms.items():
        array = stored.get(key)
        if array is not None and form.fits(array):
            found[key] = array
        elif array is not None or form.needed:
            got = "nothing" if array is None else f"{array.dtype} {list(array.shape)}"
            wanted = ", ".join("any" if n is None else str(n) for n in form.shape)
            raise CheckpointError(f"{path / name}.safetensors: {key}: must be {form.dtype} [{wanted}], got {got}")
    return found
