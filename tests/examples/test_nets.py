"""The examples are short and learn on two ranks; those of larger nets resume with the same bits, alone."""

import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.run.session import Session
from mpibow.run.signals import Signals
from tests.examples.cases import CASES
from tests.launching import mpirun, needs_mpi, well

FOLDER = Path(__file__).parents[2] / "examples"
PRINTED = {  # the least and most that it may print
    "char_gpt": (0.0, 1.0),  # a loss; 2.6 is that of the text's characters by their frequency
    "lstm_classifier": (0.8, 1.0),  # an accuracy; chance is 0.25
    "unet": (0.0, 0.3),  # a loss; 0.37 is that of classes by their frequency
    "squeeze_excite": (0.6, 1.0),  # an accuracy; chance is 0.1
    "table_mlp": (0.0, 0.4),  # a loss; 1 is that of the mean
    "tiny_vit": (0.7, 1.0),  # an accuracy; chance is 0.1, as below
    "torch_dataset": (0.8, 1.0),
    "own_cnn_folder": (0.8, 1.0),
    "own_rule": (0.4, 1.0),
    "own_step": (0.85, 1.0),
    "regression_table": (0.0, 0.3),  # a loss; 1 is that of the mean
    "segmentation": (0.0, 0.3),  # a loss; 0.37 is that of the classes' frequencies
    "language_model": (0.0, 1.0),  # a loss; 2.6 is that of the characters' frequencies
    "multi_label": (0.9, 1.0),  # f1; all labels always given come to 0.6
    "two_outputs": (0.75, 1.0),  # an accuracy; chance is 0.5
    "early_stopping": (0.5, 1.0),  # a share; always giving the mean comes to 0.2
}
TESTED_APART = {
    "fine_tune",
    "load_and_predict",
    "resume",
    "own_operator",
    "own_torch_module",
    "own_torch_operator",
    "small_gpt2",
    "tiny_bert",
}
TRANSFORMERS = ("small_gpt2", "tiny_bert")  # with a config, and what is printed where the package is missing
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))
CUT, END = 7, 12  # iterations


class Other:
    """What `fit` gives to a rank that prints nothing."""

    rank = 1


@pytest.fixture
def program(here: Path, monkeypatch) -> Callable[..., None]:
    """Runs an example, as a program in a folder of its own."""

    def run(name: str, *arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", [str(FOLDER / f"{name}.py"), *arguments])
        runpy.run_path(sys.argv[0], run_name="__main__")

    return run


@pytest.fixture
def asked(program: Callable[..., None], monkeypatch) -> Callable[..., tuple]:
    """What an example asks of `fit`: by position, and by name."""

    def run(name: str, *arguments: str) -> tuple:
        calls = []
        with monkeypatch.context() as patched:
            patched.setattr(mb, "fit", lambda *given, **settings: calls.append((given, settings)) or Other())
            program(name, *arguments)
        (call,) = calls
        return call

    return run


def test_every_example_is_here():
    assert {*PRINTED, *TESTED_APART} == {*EXAMPLES}
    assert {*CASES} <= {*PRINTED}


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_short(name):
    lines = (FOLDER / f"{name}.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= (40 if name in {*CASES, *TRANSFORMERS} else 25)


# Runs examples in turn, each in a folder of its own: starting ranks takes longer than most of them.
IN_TURN = """
import contextlib, io, json, os, runpy, sys
printed = {}
for path in sys.argv[1:]:
    sys.argv, name = [path], os.path.basename(path).removesuffix(".py")
    os.makedirs(name, exist_ok=True)
    os.chdir(name)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(path, run_name="__main__")
    printed[name] = out.getvalue()
    os.chdir("..")
if all(printed.values()):  # on rank 0
    print(json.dumps(printed))
"""


@needs_mpi
@pytest.mark.parametrize("group", range(4))
def test_on_two_ranks(group, tmp_path):
    names = [*PRINTED][group::4]
    printed = json.loads(
        well(mpirun(2, "-c", IN_TURN, *(str(FOLDER / f"{name}.py") for name in names), cwd=tmp_path)).stdout
    )
    assert list(printed) == names
    for name, text in printed.items():
        (value,) = re.findall(r"\d+\.\d+(?:e-\d+)?", text)
        least, most = PRINTED[name]
        assert least <= float(value) <= most, name
        assert ("callback EarlyStopping" in text) == (name == "early_stopping")


class Killed(BaseException):
    """What nothing catches: whatever is on disk stays as it is."""


@pytest.mark.parametrize("name", CASES)
def test_killed_and_resumed(name, asked: Callable[..., tuple], monkeypatch):
    """The same bits as of a run that was never killed, of two learners."""
    (given, settings), train = asked(name), mb.fit
    settings |= {"stop": {"iterations": END}, "checkpoint": {"every": "5 iterations"}, "evaluate": {"every": 100.0}}
    whole = train(*given, **settings, out="whole")
    module = sys.modules["mpibow.train"]
    iterate = module.iterate

    def killing(session: Session, signals: Signals) -> None:
        if session.iteration == CUT:
            raise Killed
        iterate(session, signals)

    with monkeypatch.context() as patched:
        patched.setattr(module, "iterate", killing)
        with pytest.raises(Killed):
            train(*given, **settings, out="cut")
    again = train(*given, **settings, out="cut", resume="auto")
    assert again.summary.iterations == END
    assert {key: array.tobytes() for key, array in again.weights.items()} == {
        key: array.tobytes() for key, array in whole.weights.items()
    }


def test_a_text_of_ones_own(asked: Callable[..., tuple]):
    text = "".join(map(chr, range(32, 127)))
    Path("own.txt").write_text(text)
    (_, (seen, following)), _ = asked("char_gpt", "own.txt")
    assert bytes(seen[1].tolist()).decode() == text[8:40]
    assert bytes(following[1].tolist()).decode() == text[9:41]


def test_languages_of_ones_own(asked: Callable[..., tuple]):
    Path("own.txt").write_text("two  a text that is longer than what is read\none short\ntwo b c\n")
    (net, (texts, labels)), _ = asked("lstm_classifier", "own.txt")
    assert net.keywords == {"classes": 2}
    assert labels.tolist() == [1, 0, 1]
    assert [bytes(row.tolist()).decode() for row in texts] == [
        "a text that is longer th",
        f"{'short':24}",
        f"{'b c':24}",
    ]


def test_masks_of_ones_own(asked: Callable[..., tuple]):
    images, masks = np.ones((2, 3, 8, 8)), np.zeros((2, 8, 8), np.uint8)
    np.savez("own.npz", images=images, masks=masks)
    (_, data), _ = asked("unet", "own.npz")
    assert [array.shape for array in data] == [images.shape, masks.shape]


def test_images_of_ones_own(asked: Callable[..., tuple]):
    (_, *data), _ = asked("squeeze_excite", "data/own")
    assert data == ["data/own/train", "data/own/test"]


def test_a_table_of_ones_own(asked: Callable[..., tuple]):
    """Standardised: 1 and 3 are 1 off their mean of 2, in units of their spread of 1."""
    Path("own.csv").write_text("a,b,target\n1,5,2\n3,1,6\n")
    (_, (features, target)), _ = asked("table_mlp", "own.csv")
    assert features.tolist() == [[-1.0, 1.0], [1.0, -1.0]]
    assert target.tolist() == [-1.0, 1.0]
