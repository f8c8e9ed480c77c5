"""The metrics that a run reports, from its settings and its program, and the tensors that they take."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibow.config import build
from mpibow.config.schema import MetricSettings
from mpibow.errors import ConfigError, MpibowError
from mpibow.graph import FLOAT, Graph
from mpibow.metrics import METRICS
from mpibow.metrics.classes import Classes
from mpibow.metrics.metric import OWN, Measure
from mpibow.models import predictions, read_by
from mpibow.ops import SoftCrossEntropy
from mpibow.ops.dropout import COUNTER


@dataclass(frozen=True)
class ProgramMetric:
    """A metric of the user's program. `output` names one of several outputs; '' is all of them."""

    metric: Any
    output: str = ""


def metrics_of(
    given: Sequence[object] | Mapping[str, Sequence[object]],
) -> tuple[list[str | Mapping[str, object]], list[ProgramMetric]]:
    """Splits `fit(metrics=...)`, a list or lists by output: a config's setting `metrics`, and the program's own."""
    if isinstance(given, Mapping):
        parts = {name: metrics_of(some) for name, some in given.items()}
        listed: list[str | Mapping[str, object]] = [
            {**({"name": each} if isinstance(each, str) else each), "output": name}
            for name, (found, _) in parts.items()
            for each in found
        ]
        return listed, [ProgramMetric(each.metric, name) for name, (_, own) in parts.items() for each in own]
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"metrics: must be a list, as ['mae'], got {given!r}")
    settings = []
    own = []
    for n, each in enumerate(given):
        if isinstance(each, str | Mapping):
            settings.append(each)
        elif hasattr(each, "sums") and hasattr(each, "close"):
            own.append(ProgramMetric(each))
        else:
            raise ConfigError(
                f"metrics[{n}]: must be a name, settings with a name, or an object with sums and close such as "
                f"mpibow.Metric, got {type(each).__name__}"
            )
    return settings, own


def measures_of(
    settings: Sequence[str | MetricSettings], own: Sequence[ProgramMetric], graph: Graph, *, classes: bool
) -> tuple[Measure, ...]:
    """Each metric with the tensors of `graph`, which evaluates; a net of `classes` has logits and labels.

    Raises ConfigError naming what does not fit: a name, an option, an output, shapes.
    """
    outputs = {"": "logits"} if classes else {name: name for name in predictions(graph)}
    if (settings or own) and not outputs:
        raise ConfigError("metrics: need outputs, this net gives losses alone; train with fit(net, ..., loss=...)")
    targets = {"": "label"} if classes else _targets(graph)
    found = [
        _built(each if isinstance(each, MetricSettings) else MetricSettings(each), f"metrics[{n}]", outputs, targets)
        for n, each in enumerate(settings)
    ]
    found += [_placed(_name(each), each.metric, each.output, "metrics", outputs, targets, whole=True) for each in own]
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"metrics: {name} is there twice; give one another label, as {{name: ..., label: ...}}")
        if name in OWN and name != "accuracy":
            raise ConfigError(f"metrics: {name} is the name of what every run reports; give another label")
    for each in found:
        if type(each.metric) in METRICS.values():
            _tried(each, graph)
    return tuple(found)


def directions(measures: Sequence[Measure]) -> dict[str, bool]:
    """The metrics that may decide on a run by name; True if a higher value is better."""
    return OWN | {each.name: each.rises for each in measures if each.rises is not None}


def suggested(name: str, names: Sequence[str]) -> str:
    """The end of a message that refuses a name: the valid names, and the closest one."""
    close = difflib.get_close_matches(name, names, n=1)
    return f"must be one of {', '.join(names)}, got '{name}'" + (f"; did you mean '{close[0]}'?" if close else "")


def _built(settings: MetricSettings, path: str, outputs: Mapping[str, str], targets: Mapping[str, str]) -> Measure:
    if settings.name not in METRICS:
        raise ConfigError(f"{path}: {suggested(settings.name, list(METRICS))}")
    metric = build(METRICS[settings.name], settings.options, path=path)
    name = settings.label or ".".join(filter(None, (settings.output, settings.name)))
    return _placed(name, metric, settings.output or "", path, outputs, targets, whole=False)


def _name(wanted: ProgramMetric) -> str:
    name = getattr(wanted.metric, "name", None) or type(wanted.metric).__name__
    return f"{wanted.output}.{name}" if wanted.output else str(name)


def _placed(
    name: str,
    metric: Any,
    output: str,
    path: str,
    outputs: Mapping[str, str],
    targets: Mapping[str, str],
    *,
    whole: bool,
) -> Measure:
    """`whole` metrics get all outputs and targets where there are several and none is named."""
    if output and output not in outputs:
        raise ConfigError(f"{path}.output: {suggested(output, [each for each in outputs if each])}")
    if not output and len(outputs) > 1 and not whole:
        line = f"{{name: {name}, output: {next(iter(outputs))}}}"
        raise ConfigError(f"{path}: the net gives {', '.join(outputs)}; name one of them, as {line}")
    if not output and len(outputs) == 1:
        (output,) = outputs
    given = outputs[output] if output in outputs else dict(outputs)
    target: str | Mapping[str, str] = targets[output] if output in targets else dict(targets)
    if not isinstance(target, str) and len(target) == 1:
        target = next(iter(target.values()))
    if not isinstance(target, str) and not whole:
        raise ConfigError(f"{path}: needs a target named {output}, the data have {', '.join(targets) or 'none'}")
    return Measure(name, metric, given, target)


def _targets(graph: Graph) -> dict[str, str]:
    """The targets by name: the inputs of the graph that its outputs do not depend on."""
    read = read_by(graph, list(predictions(graph).values()))
    return {name: name for name in graph.inputs if name not in read and name != COUNTER}


def _tried(measure: Measure, graph: Graph) -> None:
    """Raises ConfigError where the metric does not take arrays of these shapes, or probabilities for classes."""

    names: Any = measure.output, measure.target  # of one array each, in metrics of ours

    def zeros(name: str) -> Any:
        tensor = graph.tensors[name]
        return np.zeros(tensor.shape, np.float64 if tensor.dtype == FLOAT else tensor.dtype)

    try:
        soft = graph.behind(node.inputs[1] for node in graph.nodes if isinstance(node.op, SoftCrossEntropy))
        if isinstance(measure.metric, Classes) and measure.target in soft and graph.tensors[names[1]].dtype == FLOAT:
            raise ConfigError(f"takes classes, {measure.target} has their probabilities; give a metric of your own")
        measure.metric.close(measure.metric.sums(zeros(graph.outputs[names[0]]), zeros(names[1])))
    except MpibowError as error:
        raise ConfigError(f"metrics: {measure.name}: {error}") from None
