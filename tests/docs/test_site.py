"""docs/ as a site: Sphinx builds it without a warning, with every setting and every public name."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mpibow
from mpibow.config.listing import rows
from mpibow.config.schema import Config

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("furo", reason="pip install -e '.[docs]'")
    built: Path = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "-W", "--keep-going", "-q", "-d", str(built / "doctrees"), "docs", str(built / "html")]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=720, check=False
    )
    assert done.returncode == 0, done.stderr
    return built / "html"


def test_every_setting_is_on_its_page(site: Path) -> None:
    page = html.unescape(re.sub(r"<[^>]+>", "", (site / "settings.html").read_text()))
    words = set(re.findall(r"[\w.]+", page))
    paths = {path.removesuffix(".<option>") for path, _, _ in rows(Config)}
    assert len(paths) > 100
    assert [path for path in sorted(paths) if path.removesuffix(".") not in words] == []


def test_every_function_is_in_the_reference(site: Path) -> None:
    described = set(re.findall(r'id="mpibow\.(\w+)"', (site / "reference.html").read_text()))
    functions = {
        name for name in mpibow.__all__ if callable(value := getattr(mpibow, name)) and not hasattr(value, "infer")
    }
    assert len(functions) > 80
    assert functions - described == set()
