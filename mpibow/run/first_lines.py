"""The first lines of a run's log: the run, its data and learners, and warnings of settings that fit them badly."""

from collections.abc import Mapping

from mpibow.config import Config
from mpibow.job import Job
from mpibow.job.checks import poor_fits
from mpibow.optim.schedules import ended_early
from mpibow.sync.family import MEASURED
from mpibow.tune import as_sum

from .results import Ledger
from .start import Start, fresh_states
from .steering import Where, jump


def start_lines(start: Start, job: Job, ledger: Ledger) -> list[str]:
    """The log's first lines: the run, its learners, its folder; and changes since the checkpoint."""
    config = job.config
    source = start.source
    counts, _ = start.learners
    how = {"auto": "auto, now "}.get(config.learners, "replayed, now ") if isinstance(config.learners, str) else ""
    about = (
        f"{job.title}: {job.weights:,} weights, {len(counts)} rank(s), "
        f"learners {how}{as_sum(counts)}, batch {config.batch_size}, {job.kernels.about}; {source.folder}"
    )
    unlike = next((each.name for each in config.update.optimisers if each.name != MEASURED), "")
    states = rate = ""
    chose = ledger.chooser
    if (header := source.header) is not None:
        states = "" if start.changed else fresh_states(header.config, config, job.layout)
        chose = header.ledger.chooser
        epoch = header.position / job.train.count
        rate = jump(header.config, config, Where(header.iteration, header.position, epoch, counts), ledger)
    return [
        *source.notes,
        start.restarts,
        states,
        rate,
        f"{chose} data decided which checkpoint was the best; the choice begins anew"
        if chose != ledger.chooser
        else "",
        about,
        f"rule: a gain was measured with sgd only; with {unlike} the gain is 1" * (config.averaging != config.rule),
        *data_lines(job),
        ended_early(config.schedule, config.update.lr, config.stop.epochs),
        *poor_fits(job, counts),
    ]


def execution_lines(ways: Mapping[str, str], execution: str, compared: bool, config: Config) -> list[str]:
    """The log's lines on how learners run, where there are several ways."""
    if not ways:
        return []
    turns = "assignment: first_come has no effect on a GPU, where the host enqueues batches in turn"
    measured = "; the faster of both will be measured" * compared
    return [f"execution: {execution}, {ways[execution]}{measured}", turns * (config.assignment == "first_come")]


def data_lines(job: Job) -> list[str]:
    """The log's line on the data sets, as "train: 54,000 samples, validation: 6,000 split off, test: 10,000"."""
    sets = [f"train: {job.train.count:,} samples"]
    for name, data in job.evaluated.items():
        sets.append(f"{name}: {data.count:,}" + " split off" * (name == "validation" and job.held_out is not None))
    warned = (
        "no validation data: test data decide when to stop, and which checkpoint is the best; set data.validation=0.1"
    )
    return [", ".join(sets)] + [warned] * (job.chooser == "test")
