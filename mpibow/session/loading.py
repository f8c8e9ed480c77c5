"""The way in which ranks read their data: one choice for all, from the facts of each."""

from __future__ import annotations

from mpibow.comm.binding import allowed_cores, machine_cores
from mpibow.comm.communicator import Communicator
from mpibow.config.schema import Data
from mpibow.data.loading import Loading
from mpibow.data.readers import Choice, choose, prefetch, threads_of
from mpibow.job import Job


def choose_loading(job: Job, comm: Communicator) -> Loading:
    """The loading of this rank, by a choice that all ranks share. Collective."""
    wanted = "auto" if job.config.data is None else job.config.data.pipeline
    facts = comm.share(job.device.memory.facts(comm))
    return loading_of(job, choose(wanted, job.train, facts), comm.local_size)


def loading_of(job: Job, choice: Choice, ranks: int) -> Loading:
    """The loading of one of a node's `ranks` for the data of `job`, by `choice`."""
    config, data = job.config, job.config.data or Data("given")
    return Loading(
        job.train, job.evaluated, choice, config.batch_size, prefetch(config.prefetch, job.train, config.batch_size),
        threads_of(data.workers, allowed_cores(), machine_cores(), ranks), data.most_damaged,
    )  # fmt: skip
