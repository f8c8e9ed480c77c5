"""That numba's first compilation is said, and only that."""

import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest

from examples.own_rule import Average
from mpibow.comm import Communicator, Single
from mpibow.config import load_mapping
from mpibow.job import BUILT_IN, open_job
from mpibow.job.device import Device
from mpibow.kernels.compiled.code_cache import TITLE, compiling
from mpibow.kernels.compiled.generated import applying, sending
from tests.comm.threads import on_threads
from tests.launching import well

ROOT = Path(__file__).parents[3]
JOB = """
import sys
from mpibow.comm.communicator import Single
from numba.core.caching import NullCache
from mpibow.config import load_mapping
from mpibow.job import BUILT_IN, open_job
from mpibow.kernels.compiled import flat, orthogonal
settings = {**BUILT_IN, "model": {"name": "logistic"}, "device": "onednn"}
job = open_job(load_mapping(settings, []))
if sys.argv[1] == "new":
    flat._rows_mean._cache = NullCache()  # as on a machine that has not compiled it
print(job.prepare(Single(), (2,)))
assert not orthogonal._orthogonal.signatures, "of Muon's matrices"
"""


ITERATIONS = """
import tempfile
from mpibow.comm.communicator import Single
from mpibow.config import load_mapping
from mpibow.job import BUILT_IN, open_job
from mpibow.kernels.compiled import flat
from mpibow.kernels.compiled.generated import loops
from mpibow.run.signals import Signals
from mpibow.run.session import Session
from mpibow.train import iterate

for rule in ({"name": "sma"}, {"name": "ssgd"}, {"name": "crossbow"}, {"name": "slowmo", "period": 2}):
    settings = {"model": {"name": "logistic"}, "device": "onednn", "rule": rule, "learners": 2}
    with tempfile.TemporaryDirectory() as out:
        job = open_job(load_mapping({**BUILT_IN, **settings, "out": out}, []))
        passes = [*vars(flat).values(), *vars(loops(job.config.update.step)).values()]
        with Session(job, Single()) as session:
            before = [getattr(each, "signatures", ()) for each in passes]
            for _ in range(3):
                iterate(session, Signals())
            session.settle()
            assert [getattr(each, "signatures", ()) for each in passes] == before, rule
"""


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def compile_two() -> None:
    """A function, and one that it calls."""
    inner = numba.njit(lambda x: x + 1)
    numba.njit("int64(int64)")(lambda x: inner(x))


def test_a_log_has_a_line_at_the_beginning():
    out = StringIO()
    with compiling(out) as watch:
        assert out.getvalue() == ""
        compile_two()
    assert out.getvalue() == f"{TITLE}: 5 to 30 seconds\n"
    assert re.fullmatch(
        r"compiled 2 functions for this machine in \d+ s; the next run reuses them", watch.note(watch.functions)
    )


def test_a_terminal_shows_a_line_that_counts_and_goes():
    out = Terminal()
    with compiling(out):
        compile_two()
    assert out.getvalue() == f"\r{TITLE}: 1 functions\r{TITLE}: 2 functions\r\x1b[K"


def test_nothing_is_said_where_nothing_is_compiled():
    for out in (StringIO(), Terminal()):
        with compiling(out) as watch:
            pass
        assert (out.getvalue(), watch.note(watch.functions)) == ("", "")


def test_a_job_says_it_where_something_is_new_and_only_there():
    from mpibow.kernels import NUMPY, find_kernels

    if find_kernels("auto", "float32", None)[0] is NUMPY:
        pytest.skip("oneDNN is not there: pip install -e '.[cpu]'")
    new, known = (
        subprocess.run([sys.executable, "-c", JOB, machine], cwd=ROOT, capture_output=True, text=True, check=True)
        for machine in ("new", "known")
    )
    assert new.stderr == f"{TITLE}: 5 to 30 seconds\n"
    assert new.stdout.startswith("compiled ")
    assert (known.stderr, known.stdout) == ("", "\n")


@pytest.mark.parametrize(
    ("settings", "matrices"),
    [
        ({}, False),
        ({"update": {"name": "muon"}}, True),
        ({"update": {"name": "muon", "largest_share": 1e-9}}, False),
    ],
    ids=str,
)
def test_the_orthogonal_step_is_prepared_where_matrices_take_it(settings, matrices):
    job = open_job(load_mapping({**BUILT_IN, "device": "onednn", "precision": "float32", **settings}, []))
    rehearsed = []

    def orthogonal(matrices, dtype):
        rehearsed.append(dtype)
        return lambda *_, **__: None

    flat = SimpleNamespace(**{**vars(job.kernels.flat), "orthogonal": orthogonal})
    replace(job, device=Device(replace(job.kernels, flat=flat))).prepare(Single(), (1,))
    assert bool(rehearsed) == matrices


def test_a_programs_own_rule_is_prepared():
    """Its formulas are compiled with the optimiser's."""
    config = load_mapping({**BUILT_IN, "device": "onednn", "precision": "float32"}, [])
    open_job(replace(config, rule=Average(period=2))).prepare(Single(), (1,))
    send, apply = Average(period=2).formulas
    assert apply is not None
    assert sending(config.update.step, send).update.signatures
    assert applying(apply).apply.signatures


def test_a_rank_without_compiled_kernels_prepares_beside_others():
    def prepare(comm: Communicator) -> str:
        device = "numpy" if comm.rank else "onednn"
        note = open_job(load_mapping({**BUILT_IN, "device": device}, [])).prepare(comm, (1, 1))
        return note + str(comm.share("met"))  # the next collective call

    assert [note.endswith("['met', 'met']") for note in on_threads(2, prepare)] == [True, True]


def test_the_first_iterations_find_all_passes_compiled():
    well(subprocess.run([sys.executable, "-c", ITERATIONS], cwd=ROOT, capture_output=True, text=True))


def test_the_command_finds_every_compiled_function():
    from mpibow.kernels.__main__ import modules

    sources = {Path(str(import_module(name).__file__)) for name in modules()}
    kernels = ROOT / "mpibow" / "kernels"
    decorated = {path for path in kernels.rglob("*.py") if re.search(r"^@native", path.read_text(), re.MULTILINE)}
    assert decorated <= sources
    assert kernels / "onednn" / "winograd" / "loops.py" in decorated


def test_a_container_has_what_onednn_needs_and_its_kernels():
    for recipe in ("Dockerfile", "apptainer.def"):
        text = (ROOT / "launch" / recipe).read_text()
        assert text.index("apt-get install -y --no-install-recommends libgomp1") < text.index("mpibow kernels\n")
