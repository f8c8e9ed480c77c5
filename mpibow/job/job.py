"""A job: a net, its data and their plans."""

import io
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from mpibow.comm import Communicator
from mpibow.config import Config
from mpibow.data import Samples
from mpibow.graph import Layout, Plan, choose_layout, compile_plan, one_by_one, plan_layout
from mpibow.graph.memory import zeros
from mpibow.graph.rewrite import frozen
from mpibow.kernels import KernelSet, find_kernels
from mpibow.learn.directions import Matrices, matrices_of
from mpibow.metrics.metric import Measure
from mpibow.models import Build
from mpibow.ops.products import products_of
from mpibow.optim import Muon
from mpibow.optim.groups import frozen_for, frozen_of, parts_of, trained_parts
from mpibow.sync.rehearsal import rehearse

from .device import HOST, Device
from .fingerprint import contents_of
from .normalise import Scaling
from .starting_weights import StartingWeights

Callback = Callable[[Any], object]  # of an event of the run (run/callbacks.py)
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """`build` gives the graph for a batch size: inputs named as a slot's arrays, outputs loss, accuracy and logits.

    The net of `NamedSamples` has its loss as its only output, and no scaling. `held_out` is the fraction of the
    training data that `validation` was split off as, if it was.
    """

    title: str
    config: Config
    build: Build
    train: Samples
    test: Samples | None
    scaling: Scaling | None = None
    validation: Samples | None = None
    held_out: float | None = None
    canonical: bool = False  # weights lie as they are saved, whatever the kernels' layout
    callbacks: tuple[Callback, ...] = ()  # callbacks that receive the run's events
    given: StartingWeights | None = None  # trained weights that a new run starts from
    files: Mapping[str, bytes] = field(default_factory=dict)  # by name, kept beside the settings
    sources: Mapping[str, object] = field(
        default_factory=dict
    )  # by name: a program's folders, fraction, None for its own
    quiet: bool = False  # whether the run prints nothing: log.txt has it
    measures: tuple[Measure, ...] = ()  # metrics that evaluations report beside loss and accuracy
    device: Device = HOST
    shorter: Mapping[int, Build] = field(default_factory=dict)  # by length: graphs of batches of shorter sequences

    @property
    def kernels(self) -> KernelSet:
        return self.device.kernels or kernels_of(self.config)[0]

    @property
    def precision(self) -> str:
        """The precision of the computation, also where the config leaves it to the device."""
        return self.kernels.computes_in(self.config.precision)

    @cached_property
    def layout(self) -> Layout:
        """A replica's layout: that of the training plan's kernels, or the canonical one."""
        graph = self.build(self.config.batch_size, True)
        update = self.config.update
        parts = parts_of(update.groups, graph.weight_names)
        aligned = self.kernels.aligned
        if self.canonical:
            return plan_layout(graph, update.decay_biases, parts=parts, aligned=aligned)
        # These need a gradient's elements, or have factors of several sizes.
        whole = update.clip_value is not None or isinstance(update, Muon) or bool(self.shorter)
        return choose_layout(graph, self.kernels, update.decay_biases, factors=not whole, parts=parts, aligned=aligned)

    def trained(self, epoch: float = 0.0) -> int:
        """The number of elements that are trained at `epoch`; they are the first ones of the layout."""
        groups = self.config.update.groups
        layout = self.layout
        return layout.ends[trained_parts(groups, [span.name for span in layout.spans], epoch) - 1]

    @cached_property
    def stages(self) -> list[tuple[float, int]]:
        """The epochs from which more weights are trained, each with the number of elements from then on."""
        found = sorted(
            {frozen_for(self.config.update.groups, span.name) for span in self.layout.spans} - {0.0, math.inf}
        )
        return [(epoch, self.trained(epoch)) for epoch in found]

    @property
    def evaluated(self) -> dict[str, Samples]:
        """The data that the centre is evaluated on, by name. The first decides when to stop, and the best centre."""
        found = {"validation": self.validation, "test": self.test}
        return {name: data for name, data in found.items() if data is not None}

    @cached_property
    def contents(self) -> str:
        """The digest of the training data's contents."""
        return contents_of(self.train)

    @property
    def chooser(self) -> str | None:
        return next(iter(self.evaluated), None)

    @property
    def weights(self) -> int:
        """The number of weights."""
        return self.build(self.config.batch_size).weight_count

    @cached_property
    def matrices(self) -> Matrices:
        """The matrices that take Muon's step, where the update has one."""
        update = self.config.update
        if not isinstance(update, Muon):
            return Matrices()
        return matrices_of(update, self.layout, products_of(self.build(self.config.batch_size, True)))

    def training_plan(self, epoch: float = 0.0) -> Plan:
        """The plan that trains the weights of `epoch`."""
        plans = {
            length: self._plan(build, self.config.batch_size, training=True, epoch=epoch)
            for length, build in {0: self.build, **self.shorter}.items()
        }
        return replace(plans.pop(0), shorter=plans)

    def evaluation_plan(self) -> Plan:
        return self._plan(self.build, self.config.evaluate.batch_size, training=False)

    def prepare(self, comm: Communicator, counts: Sequence[int]) -> str:
        """Compiles all that the first iterations of so many learners on each rank call.

        The ranks of a node share this: each one finds on disk what another has compiled. Standard error of rank 0 shows
        it meanwhile. Returns a line for the log, '' where nothing was compiled.
        """
        kernels = self.kernels
        config = self.config
        if kernels.compiling is None:
            comm.share(0)  # beside ranks whose kernels are compiled
            return ""
        from mpibow.kernels.compiled.code_cache import compiling

        learners = counts[comm.rank]
        matrices = bool(self.matrices.spans)
        nodes = comm.local_size < comm.size
        works: list[Callable[[], object]] = [
            kernels.handoff,
            *(
                partial(rehearse, kernels.flat, config.averaging, update.step, learners, sum(counts), matrices, nodes)
                for update in config.update.optimisers
            ),
        ]
        training = self.training_plan()
        for plan in (training, *training.shorter.values(), *[self.evaluation_plan()] * bool(self.evaluated)):
            weights = zeros(plan.layout.size, plan.weight_dtype)
            apart = replace(plan, kernels=replace(plan.kernels, join=one_by_one))  # which compiles nothing
            works += kernels.compiling(apart.bind(weights, weights).runs)
        with compiling(sys.stderr if comm.rank == 0 else io.StringIO()) as watch:
            for work in share_of_works(works, comm.local_rank, comm.local_size):
                work()
            functions = sum(comm.share(watch.functions))
        return watch.note(functions)

    def slow(self) -> str:
        """A line that names what the library lacks, or has only reference code for, in training; '' for nothing."""
        if self.kernels.compiling is None:  # not the host's library
            return ""
        plan = self.training_plan()
        lines = []
        if plan.reference:
            lines.append(f"NumPy computes {', '.join(plan.reference)}, for which {self.kernels.about} has no kernel")
        if found := [f"{name} ({', '.join(parts)})" for name, parts in plan.slow.items()]:
            lines.append(
                f"{self.kernels.about} has only reference code, which may be hundreds of times slower, for "
                f"{', '.join(found)}: device=numpy may be faster; compare with python -m mpibow.bench train"
            )
        return "; ".join(lines)

    def _plan(self, build: Build, batch: int, *, training: bool, epoch: float = 0.0) -> Plan:
        graph = build(batch, training)
        if training:
            graph = frozen(graph, frozen_of(self.config.update.groups, graph.weight_names, epoch))
        return compile_plan(
            graph, self.layout, self.kernels, self.kernels.dtype(self.config.precision), training=training
        )


def share_of_works(works: Sequence[T], worker: int, workers: int) -> list[T]:
    """All works, in an order in which workers meet as late as possible: each pair begins at both ends of its share."""
    start = len(works) * (worker + worker % 2) // workers
    turned = [*works[start:], *works[:start]]
    return turned[::-1] if worker % 2 else turned


def kernels_of(config: Config) -> tuple[KernelSet, str]:
    """The kernel set of `device`, and a line about it. Raises DeviceError."""
    return find_kernels(config.device, config.precision, config.onednn.library, config.onednn.winograd)
