"""All steps for a machine with a GPU, run where there is none: order, limits, failures, and going on."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.gpu import gpu_about as about

ROOT = Path(__file__).parents[2]
STUB = """#!/bin/sh
case "$*" in
*gpu_page* | "-c "*) exec {python} "$@" ;;
*"pip install"*) mkdir -p {folder} ;;
*gpu_about*) echo "sees $LD_LIBRARY_PATH" ;;
*"gpu_smallest kinds"*) exec sleep 60 ;;
*"gpu_smallest nccl"*) echo "no NCCL"; exit 3 ;;
*"bench_gpu "*"--models resnet50"*) echo "## What was left out for want of time" > {results}/gpu.md ;;
*) echo "ran $* with $XDG_CACHE_HOME" ;;
esac
"""
TABLE = [
    tuple(line.split(None, 2))
    for part in re.findall(r"<<'STEPS'\n(.*?)^STEPS$", (ROOT / "benchmarks/gpu_all.sh").read_text(), re.S | re.M)
    for line in part.splitlines()
]
NAMES = [name for name, _, _ in TABLE]


def launched(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """On a machine that has nothing of NVIDIA's: programs that are asked for their version say it."""
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("ncu", "compute-sanitizer", "nvidia-smi"):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*"\n')
        (programs / name).chmod(0o755)
    told = {"RESULTS": str(tmp_path / "results"), "OUT": str(tmp_path / "out"), "PYTHON": sys.executable, **environment}
    told["PATH"] = f"{programs}:{os.environ['PATH']}"
    return subprocess.run(
        [str(ROOT / "benchmarks/gpu_all.sh"), *arguments], env={**os.environ, **told}, capture_output=True, text=True,
        timeout=720, check=False,
    )  # fmt: skip


def libraries(tmp_path: Path) -> Path:
    site = "lib/python{}.{}/site-packages".format(*sys.version_info)
    return tmp_path / f"results/prefix/{site}/nvidia/cu13/lib"


def stub(tmp_path: Path) -> str:
    """A Python that has a GPU: a step of it never ends, one fails, one always has more to do."""
    path = tmp_path / "python"
    path.write_text(STUB.format(python=sys.executable, folder=libraries(tmp_path), results=tmp_path / "results"))
    path.chmod(0o755)
    return str(path)


def bundle(tmp_path: Path) -> str:
    for name in ("wheels/one.whl", "first/mpibow/kernels/a.cubin", "caches/mpibow/kernels/a.cubin"):
        path = tmp_path / "bundle" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    return str(tmp_path / "bundle")


def codes(folder: Path) -> dict[str, str]:
    """Every step's last exit code."""
    lines = [line.split("\t") for line in (folder / "steps.tsv").read_text().splitlines()]
    return {name: code for name, code, _ in lines}


def test_usage(tmp_path):
    for wrong in ("--nonsense", "nonsense", "-"):
        done = launched(tmp_path, wrong)
        assert done.returncode == 2
        assert "benchmarks/gpu_all.sh [--bundle DIR] [STEP...]" in done.stderr
        assert not (tmp_path / "results").exists()


def test_every_step_runs_or_is_named_as_failed(tmp_path):
    """The whole script: its table in order, limits that are kept, no early end, a page, and what there is to do yet."""
    told = {"PYTHON": stub(tmp_path), "STEP_LIMIT": "16", "LD_LIBRARY_PATH": "/before"}
    done = launched(tmp_path, "--bundle", bundle(tmp_path), **told)
    out, results = tmp_path / "out", tmp_path / "results"
    found = codes(out)
    assert list(found) == NAMES
    wrong = {name: code for name, code in found.items() if code != "0"}
    assert wrong == {"nccl": "3", "kinds": "124", "resnet50": "75"}, done.stdout
    assert done.returncode == 75
    assert "nccl: ended with 3; " in done.stdout
    assert done.stdout.splitlines()[-2:] == ["failed: kinds nccl", "not enough time is left: call again"]
    for name in NAMES:
        assert (results / f"{name}.log").exists(), name
    log = (out / "all.log").read_text()
    assert f":{libraries(tmp_path)}:" in log.split("sees ")[1].splitlines()[0]
    assert log.split("sees ")[1].splitlines()[0].endswith(":/before")
    assert f"ran -m mpibow.bench train convnet --device cuda --seconds 1 --json with {results}/first\n" in log
    assert "-p benchmarks.gpu.gpu_marks -n 6 -m gpu" in log
    page = (out / "page.md").read_text()
    assert "| nccl | failed with 3 |" in page
    assert "| kinds | stopped at its time limit |" in page
    packed = [path for path in out.iterdir() if path.name.startswith("caches.tar.gz.")]
    names = subprocess.run(["tar", "-tzf", str(packed[0])], capture_output=True, text=True, check=True).stdout.split()
    assert {f"{cache}/mpibow/kernels/a.cubin" for cache in ("first", "caches")} <= set(names)
    assert len(list(out.iterdir())) <= 8

    again = launched(tmp_path, **told)
    assert again.stdout.startswith("== resnet50 (")
    assert again.stdout.count("== ") == 1
    assert again.returncode == 75


def test_a_call_that_is_cut_goes_on(tmp_path):
    """A step that the call's end stops is run again, one that has ended is not, and nothing is run without time."""
    python = stub(tmp_path)
    first = launched(tmp_path, "cudnn", "kinds", "lenet-1", PYTHON=python, LIMIT="18")
    assert (first.returncode, codes(tmp_path / "out")) == (75, {"cudnn": "0", "kinds": "75"}), first.stdout
    Path(python).write_text(Path(python).read_text().replace("exec sleep 60", "echo kinds"))
    again = launched(tmp_path, "cudnn", "kinds", "lenet-1", PYTHON=python)
    assert again.returncode == 0
    assert codes(tmp_path / "out") == {"cudnn": "0", "kinds": "0", "lenet-1": "0"}
    assert "== cudnn" not in again.stdout
    forgotten = launched(tmp_path, "--again", "cudnn", PYTHON=python)
    assert (forgotten.returncode, codes(tmp_path / "out")) == (0, {"cudnn": "0"}), forgotten.stdout


def test_without_a_gpu_a_step_fails_in_words(tmp_path):
    done = launched(tmp_path, "nvrtc")
    assert done.returncode == 1
    assert codes(tmp_path / "out") == {"nvrtc": "1"}
    assert "CuPy" in (tmp_path / "out/all.log").read_text()


def test_the_table_asks_for_what_there_is():
    from benchmarks.gpu import bench_gpu, gpu_items, gpu_smallest

    assert len(set(NAMES)) == len(NAMES)
    commands = " ".join(command for _, _, command in TABLE)
    keys = re.findall(r"'((?:learners|search) [^']+)'", commands)
    assert len(keys) == 11
    assert [item.key for item in gpu_items.named(keys, gpu_items.NETS, bench_gpu.QUICK)] == keys
    with pytest.raises(SystemExit, match=r"^--item: no entry is called 'x', but choice resnet32 16 tf32, "):
        gpu_items.named(["x"], gpu_items.NETS, bench_gpu.QUICK)
    assert re.findall(r"gpu_smallest (\w+)", commands) == list(gpu_smallest.PROGRAMS)
    files = re.findall(r"tests/\S+\.py", commands)
    files += [module.replace(".", "/") + ".py" for module in re.findall(r"-m (benchmarks\.\S+)", commands)]
    assert [file for file in files if not (ROOT / file).exists()] == []
    tested = {Path(file).name for file in files if file.startswith("tests/gpu/")}
    assert tested == {path.name for path in (ROOT / "tests/gpu").glob("test_*.py")} - {"test_opened.py"}


def test_tests_that_have_passed_are_not_run_again(tmp_path):
    (tmp_path / "test_two.py").write_text("def test_well(): pass\ndef test_wrong(): assert 0\n")

    def run(*more: str) -> str:
        told = {"GPU_MARKS": str(tmp_path / "passed.txt"), "PYTHONPATH": str(ROOT)}
        outside = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_XDIST")}
        plugins = ["-p", "benchmarks.gpu.gpu_marks", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *plugins, "-q", *more, "."]
        done = subprocess.run(
            command, cwd=tmp_path, env={**outside, **told}, capture_output=True, text=True, check=False
        )
        return f"{done.returncode}: {done.stdout.splitlines()[-1].split(' in ')[0]}"

    assert run("-n", "1") == "1: 1 failed, 1 passed"
    assert (tmp_path / "passed.txt").read_text() == "test_two.py::test_well\n"
    (tmp_path / "test_two.py").write_text("def test_well(): assert 0\ndef test_wrong(): pass\n")
    assert run("-n", "1") == "0: 1 passed"
    assert run() == "0: 2 deselected"


def test_what_is_here_and_what_is_not():
    def load(module: str) -> object:
        if module == "cupy":
            raise ImportError("libcuda.so.1: cannot open\nmore")
        return SimpleNamespace()

    lines, whole = about.told({"numpy": "numpy", "cupy": "cupy-cuda13x", "one": "no-such-package"}, load)
    assert lines[0].startswith("numpy: ")
    assert lines[1:] == [
        "cupy: ImportError: libcuda.so.1: cannot open",
        "one: here, of another package than no-such-package",
    ]
    assert not whole
