"""docs/models.md has every model, with its image, classes, weights and options."""

import inspect
import re
from pathlib import Path

from mpibow.models import MODELS, OBJECTIVES
from tests.models.test_models import COUNTS

PAGE = (Path(__file__).parents[2] / "docs/models.md").read_text()


def test_the_table_is_the_models():
    rows = {
        name: (tuple(map(int, shape.split(" x "))), int(classes), int(count.replace(",", "")))
        for name, shape, classes, count in re.findall(r"^\| `(\w+)` \| ([\dx ]+) \| (\d+) \| ([\d,]+) \|", PAGE, re.M)
    }
    assert rows == {name: COUNTS[name] for name in MODELS}
    assert all(f"`{name}`" in PAGE for name in OBJECTIVES)


def test_the_options_are_the_functions():
    for name, model in MODELS.items():
        (row,) = re.findall(rf"^\| `{name}` .*$", PAGE, re.M)
        options = [key for key in inspect.signature(model).parameters if key not in ("image", "classes")]
        assert re.findall(r"`(\w+): ", row) == options
