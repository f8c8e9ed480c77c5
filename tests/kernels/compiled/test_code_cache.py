"""Compiled code is used again for the same source, types and processor, also where nothing can be written."""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import pytest

from mpibow.kernels.compiled import code_cache
from mpibow.kernels.compiled.code_cache import CodeCache, compiling, jit
from tests.launching import ROOT

NOWHERE = Path("/proc/nowhere")  # where not even root can make a folder
JOB = """
from mpibow.comm.communicator import Single
from mpibow.config import load_mapping
from mpibow.job import BUILT_IN, open_job
job = open_job(load_mapping({**BUILT_IN, "model": {"name": "mlp"}, "device": "onednn"}, []))
print(job.prepare(Single(), (1,)))
"""


def compiled(file: Path, text: str = "def f(x): return x + 1"):
    """The function `f` of a module, new in this process."""
    space = {}
    exec(compile(text, file, "exec"), space)
    code_cache._content.cache_clear()
    return jit(space["f"])


def functions(f, argument: float, result: float) -> int:
    """How many functions f(argument) has numba compile."""
    with compiling(open(os.devnull, "w")) as watch:
        assert f(argument) == result
    return watch.functions


@pytest.fixture(autouse=True)
def users(tmp_path, monkeypatch) -> Path:
    """The user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(CodeCache, "lost", 0)
    return tmp_path / "user/mpibow/compiled"


def test_code_is_kept_beside_its_module(tmp_path, users: Path):
    assert functions(compiled(tmp_path / "m.py"), 1, 2) == 1
    assert functions(compiled(tmp_path / "m.py"), 1, 2) == 0
    assert functions(compiled(tmp_path / "m.py"), 1.5, 2.5) == 1  # other types
    assert len(list((tmp_path / "__pycache__").iterdir())) == 2
    assert not users.exists()


def test_a_copy_elsewhere_with_other_dates_is_as_good(tmp_path):
    text = "def f(x): return x + 1"
    (tmp_path / "m.py").write_text(text)
    assert functions(compiled(tmp_path / "m.py", text), 1, 2) == 1
    copy = shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("user", "copy"))
    os.utime(copy / "m.py", (1, 1))
    assert functions(compiled(copy / "m.py", text), 1, 2) == 0


def test_other_source_of_the_same_length_is_compiled(tmp_path):
    for number in (1, 2):
        (tmp_path / "m.py").write_text(text := f"def f(x): return x + {number}")
        assert functions(compiled(tmp_path / "m.py", text), 1, 1 + number) == 1


def test_a_file_that_changes_before_its_function_is_compiled(tmp_path):
    """The code is kept under the source that it was compiled from."""
    (tmp_path / "m.py").write_text(before := "def f(x): return x + 1")
    early = compiled(tmp_path / "m.py", before)
    (tmp_path / "m.py").write_text(after := "def f(x): return x + 2")
    assert functions(early, 1, 2) == 1
    assert functions(compiled(tmp_path / "m.py", after), 1, 3) == 1


@pytest.mark.parametrize("name", ["image", "resize"])
def test_the_decorator_of_a_part_is_in_the_key(name):
    modules = {name: vars(import_module(f"mpibow.kernels.compiled.{name}"))}
    code_cache._follow(modules[name], modules)
    assert "mpibow.kernels.compiled.numeric" in modules


def test_without_a_lock_file_code_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(NOWHERE))
    code_cache._locks.cache_clear()
    try:
        assert functions(compiled(tmp_path / "m.py"), 1, 2) == 1
        assert code_cache._locks() == -1
    finally:
        code_cache._locks.cache_clear()


FAILING = """
import sys, time
from pathlib import Path
from mpibow.kernels.compiled.code_cache import jit
from mpibow.kernels.compiled.code_cache import compiling
space = {}
exec(compile("def f(x): return x + undefined", sys.argv[1], "exec"), space)
try:
    with compiling():
        jit(space["f"])(1)
except Exception:
    print("failed", flush=True)
time.sleep(60)
"""


def test_a_process_whose_compiling_failed_holds_nobody_up(tmp_path):
    file = str(tmp_path / "m.py")
    with subprocess.Popen([sys.executable, "-c", FAILING, file], cwd=ROOT, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout.readline() == b"failed\n"
            assert not is_locked(other.pid)
        finally:
            other.kill()


def is_locked(pid: int) -> bool:
    """Whether the process holds a lock of records: /proc/locks has a line for each."""
    return any(line.split()[1:2] == ["POSIX"] and line.split()[4] == str(pid) for line in open("/proc/locks"))


def test_code_of_another_processor_is_not_taken(tmp_path):
    class Codegen:
        def __init__(self, *processor: str) -> None:
            self.magic_tuple = lambda: processor

    kept = compiled(tmp_path / "m.py")._cache
    names = {kept.file_name((), Codegen("x86_64", name)) for name in ("znver4", "znver2", "znver2")}
    assert len(names) == 2


def test_code_that_was_cut_off_is_compiled_again(tmp_path):
    assert functions(compiled(tmp_path / "m.py"), 1, 2) == 1
    (file,) = (tmp_path / "__pycache__").iterdir()
    for length in (0, 100):
        os.truncate(file, length)
        assert functions(compiled(tmp_path / "m.py"), 1, 2) == 1


@pytest.mark.skipif(os.name != "posix" or not Path("/proc").is_dir(), reason="needs a folder that root cannot write")
def test_code_goes_to_the_users_cache_and_else_is_said_to_be_lost(users: Path, monkeypatch):
    assert [functions(compiled(NOWHERE / "m.py"), 1, 2) for _ in range(2)] == [1, 0]
    assert len(list(users.iterdir())) == 1
    monkeypatch.setenv("XDG_CACHE_HOME", str(NOWHERE))
    with compiling(open(os.devnull, "w")) as watch:
        compiled(NOWHERE / "m.py")(1)
    assert watch.note(watch.functions).endswith(
        "; /proc/nowhere/mpibow cannot be written, so every run does; XDG_CACHE_HOME=DIR names another place"
    )


def read_only(folder: Path, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command where `folder` is mounted read-only, which binds root as well."""
    mine = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    mount = f'mount --bind {folder} {folder} && mount -o remount,ro,bind {folder} && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", *mine, "sh", "-c", f"{mount}", "sh", *command],
        cwd=folder.parent, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip(f"no folder can be mounted read-only here: {done.stderr.strip()}")
    return done


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare of util-linux")
def test_kernels_in_a_read_only_image_are_used_and_nothing_is_written(tmp_path):
    from mpibow.kernels import NUMPY, find_kernels

    if find_kernels("auto", "float32", None)[0] is NUMPY:
        pytest.skip("oneDNN is not there: pip install -e '.[cpu]'")
    command = [sys.executable, "-c", JOB]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)  # `mpibow kernels` in the image
    before = read_only(ROOT / "mpibow", ["touch", str(ROOT / "mpibow/written")])
    assert "Read-only file system" in before.stderr
    done = read_only(ROOT / "mpibow", command, XDG_CACHE_HOME=str(tmp_path / "cache"), TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
    assert list(tmp_path.iterdir()) == []
