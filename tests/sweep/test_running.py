"""A signal to a sweep makes its run save; another urgent one kills the run."""

import signal

import pytest

from mpibow.config import load_mapping
from mpibow.errors import EXIT_INTERRUPTED, EXIT_REQUEUE
from mpibow.sweep.folder import SweepFolder
from mpibow.sweep.grid import cells
from mpibow.sweep.running import Child, run_cells
from mpibow.system.process import ASKING

SENDS = "kill -{0} $PPID; sleep 0.3; "
WAITS = "for i in $(seq 9999); do sleep 0.05; done"


@pytest.mark.parametrize("number", ASKING, ids=lambda number: number.name)
def test_a_run_saves_at_a_signal_to_its_sweep(number: signal.Signals):
    before = signal.signal(number, signal.SIG_DFL)  # not ignored, however this test was started
    try:
        with Child() as child:
            run = f"trap 'exit 75' USR1; {SENDS.format(number.name[3:])}{WAITS}"
            assert child(["bash", "-c", run], 0) == EXIT_REQUEUE
            assert child.received == number.name
            assert child.code == (EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_REQUEUE)
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    ("second", "then", "code"), [("TERM", WAITS, 128 + signal.SIGKILL), ("USR1", "exit 75", EXIT_REQUEUE)]
)
def test_a_second_one_kills_the_run_if_it_is_urgent(second, then, code):
    """Batch systems may send the early signal twice."""
    saving = "trap 'saving=1' USR1; kill -USR1 $PPID; until [ $saving ]; do sleep 0.05; done; sleep 0.3; "
    run = saving + SENDS.format(second) + then
    with Child() as child:
        assert child(["bash", "-c", run], 0) == code


def test_a_cell_of_another_process_has_not_ended(tmp_path):
    kept = SweepFolder(tmp_path)
    kept.begin(1)
    (cell,) = cells(["seed=1"])
    config = load_mapping({}, model_given=True, data_given=True)
    with kept.locked(cell.name):
        assert run_cells({cell.name: (cell, config)}, kept, ()) == ([], 1, 1)
