"""docs/ as a site: Sphinx builds it without a warning, with every setting and every public name."""

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("furo", reason="pip install -e '.[docs]'")
    built = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "-W", "--keep-going", "-q", "-d", str(built / "doctrees"), "docs", str(built / "html")]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=720, check=False
    )
    assert done.returncode == 0, done.stderr
    return built / "html"


def test_settings_and_reference_are_pages(site: Path):
    """As docs/generated.py writes them."""
    for page, words in (("settings.html", ["update.lr", "rule.period"]), ("reference.html", ["mb.fit", "mb.conv2d"])):
        text = html.unescape(re.sub(r"<[^>]+>", "", (site / page).read_text()))
        assert all(word in text for word in words)
