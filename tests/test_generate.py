"""python -m mpibow.generate: what a net of tokens writes, drawn by formulas, and messages for what is none."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.data.text import chars_of
from mpibow.generate import main, pick
from tests.datasets.scripts import script
from tests.refusals import exits
from tests.run import tiny

TEXT = "abcdef" * 60
TOKENS = chars_of(TEXT)
CONTEXT = 8


def net(text: mb.Tensor) -> mb.Tensor:
    """The next letter depends on the letter alone."""
    return mb.embedding(text, 6, 6)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    windows = np.lib.stride_tricks.sliding_window_view(TOKENS.encode(TEXT), CONTEXT + 1)
    settings = {"batch_size": 8, "learners": 1, "device": "numpy", "out": str(folder)}
    found = mb.fit(
        net, (windows[:, :-1], windows[:, 1:]), loss=partial(mb.cross_entropy, axis=2),
        update={"name": "adam", "lr": 0.1}, stop={"iterations": 60}, **settings,
    )  # fmt: skip
    run = Path(found.summary.run)
    (run / "tokenizer.json").write_bytes(TOKENS.content)
    return run


def generated(capsys: pytest.CaptureFixture[str], *arguments) -> str:
    assert main([str(each) for each in arguments]) == 0
    return capsys.readouterr().out


def test_it_goes_on_as_the_text_does(trained: Path, capsys):
    """From a prompt shorter than what the net sees, to far beyond it."""
    assert (
        generated(capsys, trained, "--prompt", "ab", "--tokens", 20, "--temperature", 0) == f"{('abcdef' * 4)[:22]}\n"
    )
    assert generated(capsys, trained, "--prompt", TEXT[:40], "--tokens", 4, "--top-k", 1) == TEXT[:44] + "\n"


def test_the_seed_decides(trained: Path, capsys):
    hot = ("--prompt", "a", "--tokens", 40, "--temperature", 30)
    first, again, other = (generated(capsys, trained, *hot, "--seed", seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 42


def test_draws_follow_the_softmax():
    logits = np.log([0.5, 0.3, 0.15, 0.05])
    generator = np.random.default_rng(0)
    draw = partial(pick, logits, temperature=1.0, generator=generator)
    counts = np.bincount([draw(top_k=None) for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(counts, [0.5, 0.3, 0.15, 0.05], atol=0.03)
    best = np.bincount([draw(top_k=2) for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(best, [0.625, 0.375, 0, 0], atol=0.03)
    cold = [pick(logits, temperature=0.01, top_k=None, generator=generator) for _ in range(50)]
    assert set(cold) == {0} == {pick(logits, temperature=0, top_k=None, generator=generator)}


def net_of_codes(count: int, text: bytes) -> mb.Fitted:
    """A net of so many characters that goes on as `text` does."""
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(text, np.uint8).astype(np.int32), 5)
    return mb.fit(
        lambda text: mb.embedding(text, count, count), (windows[:, :-1], windows[:, 1:]), batch_size=8, learners=1,
        loss=partial(mb.cross_entropy, axis=2), update={"name": "adam", "lr": 0.1}, stop={"iterations": 40},
    )  # fmt: skip


def test_a_net_of_bytes_needs_no_file(here: Path, capsys):
    net_of_codes(256, ("ü" * 40).encode()).save("net.safetensors")
    arguments = ("net.safetensors", "--prompt", "ü", "--tokens", 4, "--temperature", 0, "--tokenizer", "bytes")
    assert generated(capsys, *arguments) == "üüü\n"
    assert main(["net.safetensors", "--prompt", "ü"]) == 2
    assert capsys.readouterr() == (
        "",
        "error: --tokenizer: net.safetensors kept no tokenizer.json; give one, or --tokenizer bytes for a net of "
        "bytes\n",
    )


def test_a_net_of_ascii_takes_bytes_too(here: Path, capsys):
    """As examples/char_gpt.py trains one."""
    arguments = (
        net_of_codes(128, b"xyz" * 40).summary.run,
        "--tokens",
        4,
        "--temperature",
        0,
        "--tokenizer",
        "bytes",
        "--prompt",
    )
    assert generated(capsys, *arguments, "xy") == "xyzxyz\n"
    assert main([*map(str, arguments), "ü"]) == 2
    assert capsys.readouterr().err == "error: --prompt: must be ASCII, as the net gives 128 characters\n"


def test_a_run_on_records_of_text_keeps_its_tokenizer(here: Path, capsys):
    Path("source.txt").write_text(TEXT * 2)  # two windows: a batch
    assert script("text").main(["--source", "source.txt", "--output", "records", "--tokens", "chars"]) == 0
    fitted = mb.fit(
        net, "records/train", loss=partial(mb.cross_entropy, axis=2), batch_size=2, learners=1, device="numpy",
        update={"name": "adam", "lr": 0.3}, stop={"epochs": 40},
    )  # fmt: skip
    capsys.readouterr()
    arguments = ("--prompt", "cd", "--tokens", 6, "--temperature", 0)
    assert generated(capsys, fitted.summary.run, *arguments) == "cdefabcd\n"


def test_messages(trained: Path, tmp_path, capsys):
    assert main([str(trained), "--prompt", "axe"]) == 3
    assert "has no number for the character 'x'" in capsys.readouterr().err
    assert main([str(trained), "--prompt", ""]) == 2
    assert capsys.readouterr().err == "error: --prompt: must have at least one character, got ''\n"
    assert main([str(trained), "--prompt", "a", "--tokenizer", "bytes"]) == 2
    assert capsys.readouterr().err == (
        "error: --tokenizer: has 256 tokens, the net gives 6; give the tokenizer that it was trained with\n"
    )
    tiny.run(tiny.job(tmp_path, checkpoint={"every": "20 iterations"}))
    assert main([str(tmp_path / "run"), "--prompt", "a", "--tokenizer", "bytes"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: generate: needs a net from tokens (n, t) int32 to logits (n, t, vocabulary); "
        "this one takes image (1, 6, 6) uint8 and gives logits (3,) for a sample"
    )


@pytest.mark.parametrize(("arguments", "message"), [
    (["--tokens", "0"], "argument --tokens: must be at least 1, got 0"),
    (["--temperature", "-1"], "--temperature: must be at least 0, got -1"),
    (["--top-k", "0"], "argument --top-k: must be at least 1, got 0"),
])  # fmt: skip
def test_bad_arguments(arguments, message, capsys):
    with exits(2):
        main(["run", "--prompt", "a", *arguments])
    assert capsys.readouterr().err.endswith(f"error: {message}\n")
