"""What all converters share: counted parts, work over processes in order, and exit codes."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import psutil
import pytest
from PIL import Image

from mpibow.convert.conversion import AHEAD, Part, interruptible, spreader, write_parts
from mpibow.data import open_records
from mpibow.errors import RecordError
from mpibow.system.streams import exit_code
from tests.datasets.scripts import ROOT
from tests.refusals import refuses

IMAGES = np.arange(4 * 6, dtype=np.uint8).reshape(4, 1, 2, 3)


def part(count: int, said: int | None = None) -> Part:
    return Part(count if said is None else said, ((IMAGES[i], i % 2) for i in range(count)))


def test_parts(tmp_path, capsys):
    output = tmp_path / "out"
    write_parts(output, {"train": part(3), "test": part(1)}, classes=2, class_names=["a", "b"], source="made up")
    assert capsys.readouterr().out.splitlines() == [
        f"{output}/train: 3 records of 2 classes, verified",
        f"{output}/test: 1 records of 2 classes, verified",
    ]
    train = open_records(output / "train")
    assert (train.count, train.manifest.class_names, train.manifest.source) == (3, ("a", "b"), "made up")
    assert train.record(2) == (IMAGES[2].tobytes(), 0)


@pytest.mark.parametrize("said", [2, 4])
def test_a_source_of_another_count_leaves_nothing(tmp_path, said):
    with refuses(f"{tmp_path}/out/train: the source has 3 images, {said} were expected; did it change?", RecordError):
        write_parts(tmp_path / "out", {"train": part(3, said)}, classes=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_spreading_keeps_the_order_and_takes_few_items_ahead(workers):
    taken = []

    def items() -> object:
        for number in range(-40, 0):
            taken.append(number)
            yield number

    with spreader(workers) as each:
        results = each(abs, items())
        assert next(results) == 40
        assert len(taken) <= AHEAD * workers + 1
        assert list(results) == list(range(39, 0, -1))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_worker_is_the_callers(workers):
    with pytest.raises(ValueError, match="invalid literal"), spreader(workers) as each:
        list(each(int, ["1", "x", "3"]))


def test_workers_end_with_a_killed_program(tmp_path):
    (tmp_path / "program.py").write_text(
        "import itertools, os\n"
        "from mpibow.convert.conversion import spreader\n"
        "if __name__ == '__main__':\n"
        "    with spreader(2) as each:\n"
        "        for _ in each(abs, itertools.repeat(1)):\n"
        "            print('at work', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, tmp_path / "program.py"], stdout=subprocess.PIPE) as program:
        program.stdout.readline()
        workers = psutil.Process(program.pid).children()
        assert len(workers) >= 2
        program.send_signal(signal.SIGKILL)
    _, left = psutil.wait_procs(workers, timeout=720)
    assert not left


STARTED = """
import sys
from tests.datasets.scripts import script
def arguments():  # which main() asks for: an interrupt is its own from here on
    print("ready", flush=True)
    yield from sys.argv[1:]
sys.exit(script("folder").main(arguments()))
"""


@pytest.mark.parametrize("after", [0.1, 0.4, 1.5])  # seconds: workers are just being started, or at work
def test_an_interrupted_conversion_leaves_nothing_behind(tmp_path, after):
    """Nor do its workers say anything: Ctrl-C, which a terminal sends to all of them, is not theirs."""
    (tmp_path / "source").mkdir()
    for name in "ab":
        (tmp_path / "source" / name).mkdir()
        first = tmp_path / "source" / name / "0.png"
        Image.effect_noise((1500, 1500), 90).save(first, compress_level=1)
        for number in range(1, 3000):  # a minute and more of two cores
            os.link(first, first.with_name(f"{number}.png"))
    command = [sys.executable, "-c", STARTED, "--source", str(tmp_path / "source"), "--output", str(tmp_path / "made")]
    command += ["--encode", "raw", "--size", "8x8", "--workers", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
    ) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(after)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=720)
    assert (process.returncode, err) == (130, "interrupted: nothing was left behind\n")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("own", [signal.SIG_IGN, lambda number, frame: None])
def test_a_program_that_has_its_own_way_with_interrupts_keeps_it(own):
    before = signal.signal(signal.SIGINT, own)
    try:
        with spreader(2) as each:
            assert list(each(abs, [-1])) == [1]
            assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
    with spreader(2) as each:
        assert list(each(abs, [-1])) == [1]
    assert signal.getsignal(signal.SIGINT) is before


def test_work_is_spread_on_any_thread():
    def work() -> list[int]:
        with spreader(2) as each:
            return list(each(abs, [-1, -2]))

    with ThreadPoolExecutor(1) as other:
        assert other.submit(work).result() == [1, 2]


def test_exit_codes(capsys):
    def fails() -> None:
        raise RecordError("x.bin: is short")

    def interrupted() -> None:
        raise KeyboardInterrupt

    assert [exit_code(partial(interruptible, work)) for work in (str, fails, interrupted)] == [0, 3, 130]
    assert capsys.readouterr().err == "error: x.bin: is short\ninterrupted: nothing was left behind\n"
