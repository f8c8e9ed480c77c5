"""Training from one's own script: a net as a Python function, data as NumPy arrays, the same loop as `mpibow.train`."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import partial
from glob import escape
from pathlib import Path
from types import TracebackType
from typing import Any

from .aten.net import TorchNet
from .comm.communicator import Single
from .comm.launch import guarded, open_communicator, say
from .comm.mpi import Mpi
from .config import Config, limits_of, load_mapping
from .config.strict import build
from .data.columns import CATEGORIES
from .data.dataset import NamedSamples
from .data.indexed import Hands
from .data.lengths import check_padding
from .data.sample_settings import Image, TokenStream
from .data.sample_weights import unweighed
from .data.split import split
from .errors import ConfigError, Interrupted, raised
from .evaluate import on_host
from .fitted import Fitted
from .job import Job, make_job
from .job.checks import described
from .job.job import Callback
from .job.losses import ClassWeight, losses_of, of_outputs, with_class_weight, with_sample_weight
from .job.measures import metrics_of, suggested
from .job.normalise import input_entries
from .job.record_kinds import records_files, scaled
from .job.sources import (
    Source,
    Sources,
    Transforms,
    classes_of,
    columns_of,
    hands_of,
    in_order,
    orders_of,
    parameters_of,
    source_of,
)
from .job.starting_weights import Start, of_program
from .models.augmentation import Augmentation
from .models.classifier import Net
from .models.losses import function_of, ignored
from .models.objective import Losses, LossNet, OutputNet, inputs_of_net, supervised
from .optim.groups import WeightGroup
from .probe.check import check as check_job
from .reference import with_settings
from .run.alike import from_rank_0
from .run.callbacks import EarlyStopping
from .run.directory import on_rank_0
from .run.signals import interruption
from .system.streams import interactive, until_nobody_reads

OF_COURSE = ("resume", "callbacks", "workers", "check", "weights")


def fit(
    net: Net | LossNet | OutputNet,
    train: Source,
    test: Source | None = None,
    *,
    validation: Source | float | None = None,
    loss: Losses | Mapping[str, Any] | str | None = None,
    loss_weights: Mapping[str, float] | None = None,
    sample_weight: Any = None,
    class_weight: ClassWeight | None = None,
    metrics: Sequence[Any] | Mapping[str, Sequence[Any]] = (),
    name: str = "net",
    normalise: str = "channel",
    augment: Mapping[str, Any] | None = None,
    image: Mapping[str, Any] | None = None,
    text: Mapping[str, Any] | None = None,
    weights: Start | None = None,
    resume: str | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    transform: Transforms | None = None,
    padding: Mapping[str, float] | None = None,
    lengths: Sequence[int] = (),
    workers: int = 0,
    check: bool = False,
    **settings: Any,
) -> Fitted:
    """Trains `net`, a function of tensors, and returns it trained.

    There are three kinds of nets:

    - A classifier takes an image (n, ...) and returns logits (n, classes). Leave `loss` out: it is cross-entropy.
    - Any other net returns an output, or outputs by name, and `loss` compares these with targets.
    - A net that returns its own losses (n,) takes arrays by the names of its parameters. Leave `loss` out.

    Data may be

    - a pair of arrays: (images, labels), or with `loss` (inputs, targets), each an array or arrays by name. Images are
      (n, channels, height, width) or (n, features), uint8 or float; labels are integers (n,). With `loss` arrays are
      not scaled. Features may be a data frame of pandas or polars;
    - a folder of records, such as "data/mnist/train";
    - arrays by name, {"user": ..., "item": ...}, for a net that returns losses;
    - a data set with `__len__` and `__getitem__`, such as PyTorch's and Hugging Face's. Its items are (image, label),
      (input, target) or values by name.

    Arguments:

    - `train`, `test`, `validation`: data. `validation` may be a fraction to split off `train`. It decides when to stop
      and which checkpoint is the best; without it `test` does.
    - `loss`: a function of output and target that returns one number per sample (n,), such as mpibow.mse_loss; a name,
      "mse_loss"; settings, {"name": "huber_loss", "delta": 2.0}; or these by the names of outputs. The sum of several
      losses, times `loss_weights`, is trained.
    - `sample_weight`: a number of at least 0 for each sample of `train`, (n,). Training minimises sum(weight * loss) /
      sum(weight) over each batch. Evaluation is unweighted.
    - `class_weight`: of a classifier on cross-entropy: weights by numbers or names of classes, {0: 1.0, 1: 5.0}, the
      others 1; or "balanced", n / (classes * count). It is the setting `loss.weight`; evaluation is unweighted.
    - `metrics`: names such as "mae", settings such as {"name": "top_k", "k": 3}, objects such as mpibow.Metric, or
      lists of these by the names of outputs.
    - `name`: the net's name in the log and in the name of the run directory.
    - `normalise`, `augment` ({"pad": 4, "flip": True}), `image` ({"size": 224}) and `text` ({"context": 64}): the
      settings `data.normalise`, `data.augment`, `data.image` and `data.text` of a config file.
    - `transform`: a function of (sample, rng) that changes training samples, or {"train": f, "test": g}. rng depends on
      seed, epoch and sample only. `workers` processes read a data set with `__getitem__`; 0 is a thread of this one.
    - `padding`, {"input_ids": 0, "attention_mask": 0, "labels": -100}: names of sequences of unequal lengths, and the
      number that fills each up. `lengths`, such as (32, 64, 128): each batch is padded to the shortest of these that
      fits its longest sample, and samples of like lengths come together. Left out, they are a `from_torch` net's.
    - `weights`: trained weights to start from: a run directory, a checkpoint, a safetensors file, a `Fitted`, arrays by
      name, or {"file": one of these, "exclude": "dense1.*"}.
    - `check`: first print whether the net can learn eight samples (mpibow.check), and end if it cannot.
    - `resume`: a run directory or a checkpoint to continue; "auto" is the newest run of this `name`, else a new
      one.
    - `callbacks`: functions that receive mpibow.Iteration, Evaluated, Saved and Ended. One that returns mpibow.STOP
      ends the run.
    - `settings`: all other settings of a config file: batch_size=8, learners=2, update={"lr": 0.1}, ...

    Under mpirun every rank must call it; an error on one rank ends all. Ctrl-C saves the state. In a script it
    then raises KeyboardInterrupt; in a notebook or at a prompt `fit` returns the net as trained so far, and
    `summary.stopped` is "SIGINT". SIGTERM, SIGUSR1, SIGUSR2 and SIGHUP save the state and raise mpibow.Interrupted on
    all ranks: a SystemExit, so a program that does not catch it ends with exit code 75.
    """
    given = dict(locals())  # all parameters by their names
    from .train import train as run  # late: `python -m mpibow.train` must not find it imported already

    arguments = JobArguments(**{each.name: given[each.name] for each in fields(JobArguments)})
    find = partial(arguments.config, settings)
    hands = hands_of(workers)
    comm, note = open_communicator(limits_of(find))

    def work() -> Fitted | Interrupted:
        source = with_buffers_of_rank_0(net, comm) if isinstance(net, TorchNet) else None
        config = find()
        wanted = replace(arguments, net=source or net)
        heard = (callbacks,) if callable(callbacks) else tuple(callbacks or ())
        job = replace(wanted.job(config, hands), callbacks=heard)
        for stopping in (each for each in heard if isinstance(each, EarlyStopping)):
            if not job.evaluated:
                raise ConfigError("callbacks: EarlyStopping needs validation or test data; give validation=0.1")
            known = ["loss", *["accuracy"] * (not isinstance(job.train, NamedSamples))]
            known += [each.name for each in job.measures if each.rises is not None]
            if stopping.metric not in known:
                raise ConfigError(f"metric: of EarlyStopping {suggested(stopping.metric, known)}")
        job = job if weights is None else replace(job, given=of_program(weights))
        if check and resume is None:
            report = on_rank_0(
                lambda function: function(comm),
                lambda: check_job(replace(wanted, augment=None).job(config, hands) if augment else job, run),
            )
            if comm.rank == 0:
                say(str(report))
        trained = run(job, comm, resume=resume, note=note)
        summary = trained.summary
        signal = trained.signal
        if signal and not (signal == "SIGINT" and interactive() and comm.size == 1):  # the program ends as well
            end = interruption(signal, f"the state is saved: continue with fit(..., resume={summary.run!r})")
            if isinstance(end, Interrupted):  # all ranks have it, and none need end the others
                return end
            raise end
        return Fitted(
            summary, trained.weights, comm.rank, trained.build, on_host(job.config), Path(summary.run), trained.average,
            input_entries(job.train, job.scaling, job.sources), source,
        )  # fmt: skip

    with until_nobody_reads(), closing(hands):
        if comm.size > 1:
            sys.excepthook = partial(_end_all, comm)  # an error later in the script must end the other ranks too
        try:
            done = work()
        except BaseException as error:
            if comm.size > 1:
                guarded(comm, partial(raised, error))
            raise
        finally:
            comm.close()  # no time limit on the rest of the script
    if isinstance(done, Interrupted):
        raise done
    return done


@dataclass(frozen=True, kw_only=True)
class JobArguments:
    """The arguments of `fit` that make its job."""

    net: Net | LossNet | OutputNet
    train: Source
    test: Source | None = None
    validation: Source | float | None = None
    loss: Losses | Mapping[str, Any] | str | None = None
    loss_weights: Mapping[str, float] | None = None
    sample_weight: Any = None
    class_weight: ClassWeight | None = None
    metrics: Sequence[Any] | Mapping[str, Sequence[Any]] = ()
    name: str = "net"
    normalise: str = "channel"
    augment: Mapping[str, Any] | None = None
    image: Mapping[str, Any] | None = None
    text: Mapping[str, Any] | None = None
    transform: Transforms | None = None
    padding: Mapping[str, float] | None = None
    lengths: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Raises ConfigError where net, losses and metrics are none."""
        losses = filter(callable, self.loss.values() if isinstance(self.loss, Mapping) else [self.loss])
        for key, given, remedy in (
            ("net", self.net, "give mpibow.from_torch(net, (example,))"),
            *(("loss", getattr(each, "func", each), "give its name, as 'cross_entropy'") for each in losses),
        ):
            owners = [kind.__module__ for kind in type(given).__mro__]
            owners.append(getattr(given, "__globals__", {}).get("__name__", ""))  # a function's
            if any(owner.startswith("torch.") for owner in owners):
                raise ConfigError(f"{key}: is PyTorch's; {remedy}")
        metrics_of(self.metrics)
        if losses_of(self.loss)[0] is None and self.loss_weights is not None:
            raise ConfigError("loss_weights: needs loss, losses by the names of outputs")
        check_padding(self.padding, self.lengths)

    def config(self, settings: Mapping[str, Any]) -> Config:
        """The config of `settings`, and of the losses and metrics that have a name. Raises ConfigError."""
        _, loss = losses_of(self.loss)
        metrics, _ = metrics_of(self.metrics)
        named = ({} if loss is None else {"loss": loss}) | ({"metrics": metrics} if metrics else {})
        return load_mapping({**settings, **named}, model_given=True, data_given=True)

    def job(self, config: Config, hands: Hands) -> Job:
        """The job, whose data sets `hands` read. Raises ConfigError where the arguments do not go together."""
        net = self.net
        train = self.train
        loss, named = losses_of(self.loss)
        inputs: tuple[str, ...] = ()
        if loss is None and named is None and isinstance(net, TorchNet) and "loss" in net.outputs:
            inputs = net.inputs
            net = net.losses()
        lengths = tuple(self.lengths)
        if self.padding and not lengths:
            lengths = self.net.lengths(tuple(self.padding)) if isinstance(self.net, TorchNet) else ()
            if not lengths:
                raise ConfigError("lengths: are needed with padding, as lengths=(32, 64, 128)")
        if named is not None and of_outputs(train, config.loss):
            loss = function_of(config.loss)
        augmentation = build(Augmentation, self.augment or {}, path="data.augment")
        image = None if self.image is None else build(Image, self.image, path="data.image")
        text = None if self.text is None else build(TokenStream, self.text, path="data.text")
        read = Sources(
            parameters_of(net), loss is not None, partial(classes_of, net, augmentation), ignored(config.loss),
            config.seed, self.transform, hands, image, text, inputs, self.padding, lengths,
        )  # fmt: skip
        training = read(train, "train")
        orders = orders_of(train)
        validation = in_order(self.validation, orders, "validation")
        classes = None if isinstance(training, NamedSamples) else training.classes
        test = None if self.test is None else read(in_order(self.test, orders, "test"), "test", classes=classes)
        if validation is not None and not isinstance(validation, float):
            validation = read(validation, "validation", classes=classes)
        if text is not None and not records_files(training):
            raise ConfigError(f"data.text: is for texts, {training.name} has {described(training)}; leave it out")
        if self.class_weight is not None:
            config = with_class_weight(config, self.class_weight, training, outputs=loss is not None)
        pictures = loss is not None and hasattr(training, "pictures")
        if loss is not None:
            if not isinstance(training, NamedSamples):
                raise ConfigError(f"loss: needs (inputs, targets) or arrays by name, {training.name} has classes")
            unused = {*training.inputs} - {*inputs_of_net(net, training.inputs)}
            if CATEGORIES in unused and getattr(training, "contents", None) and not isinstance(loss, Mapping):
                raise ConfigError("train: the table has categories, which the net does not take; add the argument")
            seen = (
                split(training, validation, config.seed)[0] if pictures and isinstance(validation, float) else training
            )
            net = supervised(scaled(net, seen, self.normalise), loss, tuple(training.inputs), self.loss_weights)
        if self.sample_weight is not None:
            training = with_sample_weight(training, self.sample_weight)
        job = make_job(
            self.name, config, net, training, test, validation=validation, augmentation=augmentation,
            normalise="none" if pictures else self.normalise,
            image=None if hasattr(unweighed(training), "pictures") else image, metrics=metrics_of(self.metrics)[1],
        )  # fmt: skip
        groups = (*(WeightGroup(escape(name), freeze=True) for name in job.build(1).frozen), *config.update.groups)
        config = replace(job.config, update=replace(job.config.update, groups=groups))
        sources = {"train": train, "validation": self.validation, "test": self.test}
        kept: dict[str, object] = {part: source_of(each) for part, each in sources.items() if each is not None}
        if columns := columns_of(train, read.parameters):
            kept["columns"] = columns
        return replace(job, config=config, files=records_files(unweighed(training)), sources=kept)


fit.__doc__ = with_settings(fit.__doc__)


def with_buffers_of_rank_0(net: TorchNet, comm: Single | Mpi) -> TorchNet:
    """The net, whose buffers every rank may have drawn for itself. Collective."""
    if comm.size == 1:
        return net
    buffers = net.program.buffers
    sent = from_rank_0({name: buffer.array for name, buffer in buffers.items()}, comm)
    first = {
        name: replace(buffers[name], array=array)
        for name, array in sent.items()
        if name in buffers and buffers[name].array.shape == array.shape
    }
    shorter = tuple(with_buffers_of_rank_0(each, comm) for each in net.shorter)
    return replace(net, program=replace(net.program, buffers={**buffers, **first}), shorter=shorter)


def job_of_settings(net: Net | LossNet | OutputNet, train: Source, given: Mapping[str, Any]) -> Job:
    """The job that `fit` trains with these arguments; those of the run's course are ignored."""
    names = {each.name for each in fields(JobArguments)}
    known = {key: value for key, value in given.items() if key not in OF_COURSE}
    arguments = JobArguments(net=net, train=train, **{key: known[key] for key in known.keys() & names})
    job = arguments.job(arguments.config({key: value for key, value in known.items() if key not in names}), Hands())
    return job if given.get("weights") is None else replace(job, given=of_program(given["weights"]))


def _end_all(comm: Single | Mpi, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A sys.excepthook: prints the error and ends all ranks."""
    try:
        guarded(comm, partial(raised, error.with_traceback(trace)))
    except SystemExit as end:  # raised in a hook, it would be printed and the exit code lost
        os._exit(int(end.code or 1))
