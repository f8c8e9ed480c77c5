"""What goes along to a machine with a GPU: where it lies, how large it may be, and what is said of missing parts."""

import sys
from pathlib import Path

import pytest

from benchmarks.gpu import gpu_bundle as bundle
from mpibow.cuda.device.driver import DeviceProperties
from mpibow.cuda.kernels.opened import TRIES, plan_folder
from tests.cuda.kernels import devices
from tests.refusals import refuses


def run(bundle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str) -> Path:
    """With a compiler that writes the name of its source."""

    def compiled(source: str, architecture: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / source).write_text(architecture)

    monkeypatch.setattr(bundle, "compiled", compiled)
    monkeypatch.setattr(bundle.libraries, "load", lambda name: "a library")
    monkeypatch.setattr(bundle, "nvrtc", lambda path: type("", (), {"version": "13.0"}))
    monkeypatch.setattr(devices, "missing", lambda: "no C compiler")
    data = tmp_path / "data/mnist"
    data.mkdir(parents=True, exist_ok=True)
    for name in bundle.SET:
        (data / name).write_bytes(b"x" * 100)
    folder = tmp_path / "bundle"
    monkeypatch.setattr(sys, "argv", ["gpu_bundle.py", str(folder), "--data", str(tmp_path / "data"), *arguments])
    bundle.main()
    return folder


def test_what_it_holds(monkeypatch, tmp_path, capsys):
    wheel = tmp_path / "one.whl"
    wheel.write_bytes(b"wheel")
    folder = run(bundle, monkeypatch, tmp_path, "--wheels", str(wheel))
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    sources = set(bundle.KERNELS.values())
    assert files == {
        "wheels/one.whl", *(f"data/mnist/{name}" for name in bundle.SET),
        *(f"{cache}/mpibow/kernels/{source}" for cache in ("first", "caches") for source in sources),
    }  # fmt: skip
    said = capsys.readouterr()
    assert said.out == f"{folder}: 0.0 MiB (caches 0.0, data 0.0, first 0.0, wheels 0.0)\n"
    assert said.err == f"NVRTC 13.0, {len(sources)} sources for sm_90\nno plans: no C compiler\n"


def test_what_is_too_large_is_refused(tmp_path):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/a.whl").write_bytes(bytes(3 << 20))
    assert bundle.check_size(tmp_path, 3 << 20) == f"{tmp_path}: 3.0 MiB (wheels 3.0)"
    with refuses(
        f"{tmp_path}: is 3.0 MiB (wheels 3.0), at most 2 may go along: leave out wheels that the machine has, or plans "
        "of a model",
        SystemExit,
    ):
        bundle.check_size(tmp_path, 2 << 20)
    assert bundle.MOST == 64 << 20


def test_what_is_not_there(monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"^wheels: nothing\.whl is not there$"):
        run(bundle, monkeypatch, tmp_path, "--wheels", "nothing.whl")
    with pytest.raises(SystemExit):
        run(bundle, monkeypatch, tmp_path)
    assert f"{tmp_path / 'bundle'} is there: remove it, or name another folder" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(bool(devices.missing()), reason=devices.missing())
def test_plans_lie_where_a_run_on_that_gpu_looks(tmp_path):
    said = bundle.plans(tmp_path, [], 250.0)
    assert said == f"{2 * len(devices.FEW)} plans of cuDNN for an H200, of the kind of each graph and of no model"
    gpu = DeviceProperties(3, "NVIDIA H200", "a UUID", "an address", (9, 0), 141 << 30)
    for cache, tries in (("first", TRIES), ("first", 1), ("caches", 1)):
        kept = plan_folder(tmp_path / cache / "mpibow", gpu, tries)
        assert [spec for spec in devices.FEW if kept.read(spec) is None] == []
