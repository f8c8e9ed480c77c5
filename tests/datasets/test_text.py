"""Text as records: windows of a stream, the same in every run, and the tokenizer kept beside them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow import evaluate
from mpibow.data import TokenStream, open_records
from mpibow.data.split import split
from mpibow.data.text import CHUNK, FILE, Tokens, Windows, bytes_of, chars_of, open_text, read_tokens
from mpibow.errors import ConfigError, RecordError
from tests.datasets.scripts import script
from tests.refusals import refuses

converter = script("text")
TEXT = "peter piper picked a peck of pickled peppers.\n" * 20


def convert(folder: Path, text: str | bytes, *words: str) -> int:
    source = folder / "source.txt"
    source.write_bytes(text.encode() if isinstance(text, str) else text)
    return int(converter.main(["--source", str(source), "--output", f"{folder}/out", *words]))


def opened(folder: Path, part: str = "train", *, training: bool = False, **settings) -> Windows:
    return open_text(open_records(folder / "out" / part), TokenStream(**settings), training=training)


@pytest.mark.parametrize("text", [TEXT, "añb\U0001f600c" * 30, "x" * (CHUNK + 3)])
@pytest.mark.parametrize("tokens", ["chars", "bytes"])
def test_the_text_comes_back(tmp_path, text, tokens):
    assert convert(tmp_path, text, "--tokens", tokens) == 0
    found = opened(tmp_path, context=4)
    assert found.tokens.decode(found.stream) == text
    assert found.tokens.size == (256 if tokens == "bytes" else len(set(text)))
    assert read_tokens(tmp_path / "out" / "train") == found.tokens


def test_bytes_may_be_any(tmp_path):
    assert convert(tmp_path, bytes(range(256)), "--tokens", "bytes") == 0
    assert opened(tmp_path, context=4).stream.tolist() == [*range(256)]


def test_test_data_are_the_end(tmp_path, capsys):
    assert convert(tmp_path, TEXT, "--test-fraction", "0.25") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "vocabulary: 16 tokens"
    parts = [opened(tmp_path, part, context=4) for part in ("train", "test")]
    assert [len(part.stream) for part in parts] == [690, 230]
    assert "".join(part.tokens.decode(part.stream) for part in parts) == TEXT
    assert parts[0].tokens == parts[1].tokens


def test_files_of_a_folder_in_the_order_of_their_names(tmp_path):
    texts = {
        "b10.txt": "ef",
        "b9.TXT": "cd",
        "a.txt": "\ufeffab",
        "left.md": "x",
        ".copies/a.txt": "ab",
        "../other/c.txt": "gh",
    }
    for name, text in texts.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(text, "utf-8")
    (tmp_path / "in/c").symlink_to(tmp_path / "other", target_is_directory=True)
    assert converter.main(["--source", f"{tmp_path}/in", "--output", f"{tmp_path}/out"]) == 0
    found = opened(tmp_path, context=1)
    assert found.tokens.decode(found.stream) == "abcdefgh"


def read(data: Windows, samples: list[int], epoch: int | None = None) -> tuple:
    found = tuple(np.zeros((len(samples), data.text.context), np.int32) for _ in range(2))
    if epoch is None:
        data.read(np.array(samples), *found)
    else:
        counters = np.zeros((len(samples), 4), np.uint32)
        counters[:, 0], counters[:, 1] = 7, epoch
        data.draw(np.array(samples), counters, *found)
    return found


def test_windows_follow_one_another(tmp_path):
    convert(tmp_path, "abcdefghijk")
    data = opened(tmp_path, context=3)
    assert data.count == 3
    seen, following = read(data, [0, 2])
    assert [data.tokens.decode(row) for row in seen] == ["abc", "ghi"]
    assert [data.tokens.decode(row) for row in following] == ["bcd", "hij"]


def test_training_windows_are_shifted_by_epoch_and_cover_the_stream(tmp_path):
    convert(tmp_path, TEXT)
    data = opened(tmp_path, training=True, context=8)
    numbers = [*range(data.count)]
    assert data.count == (len(TEXT) - 8) // 8
    shifts = set()
    for epoch in range(40):
        seen, _ = read(data, numbers, epoch)
        shift = data.shift(7, epoch)
        shifts.add(shift)
        assert data.tokens.decode(seen.reshape(-1)) == TEXT[shift : shift + 8 * data.count]
    assert shifts == set(range(8))
    fixed = opened(tmp_path, training=True, context=8, windows="consecutive")
    assert read(fixed, [0], 3)[0].tolist() == read(fixed, [0])[0].tolist()


def test_validation_data_are_the_end_of_the_stream(tmp_path):
    convert(tmp_path, TEXT)
    train, validation = split(opened(tmp_path, training=True, context=8), 0.25, 1)
    assert np.concatenate([train.stream, validation.stream]).tolist() == opened(tmp_path, context=8).stream.tolist()
    assert (train.shifted, validation.shifted) == (True, False)


def net(text: mb.Tensor, vocabulary: int) -> mb.Tensor:
    return mb.dense(mb.embedding(text, vocabulary, 16), vocabulary)


def test_it_trains_and_the_run_keeps_the_tokenizer(here: Path):
    convert(here, TEXT, "--test-fraction", "0.2")
    fitted = mb.fit(
        partial(net, vocabulary=16), "out/train", "out/test", validation=0.2, loss=partial(mb.cross_entropy, axis=2),
        text={"context": 8}, batch_size=4, learners=2, stop={"epochs": 6}, update={"name": "adamw", "lr": 0.01},
    )  # fmt: skip
    assert fitted.summary.test_loss < 1.5  # 2.6 is that of the characters' frequencies
    assert read_tokens(Path(fitted.summary.run)) == read_tokens(Path("out/train"))
    with pytest.raises(SystemExit) as end:
        evaluate.main([fitted.summary.run, "out/test"])
    assert end.value.code == 0


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("", [], "has no text"),
        ("a", [], "has 1 tokens, train must have at least 2, got 1"),
        ("abc", ["--test-fraction", "0.4"], "has 3 tokens, test must have at least 2, got 1"),
        (b"ab\xff", [], "byte 2 is no UTF-8; convert the file, or pass --tokens bytes"),
        ("abc", ["--tokens", "none.json"], "none.json: cannot be read: no such file or directory"),
    ],
)
def test_what_is_refused(tmp_path, capsys, text, words, message):
    assert convert(tmp_path, text, *words) == 3
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_window_longer_than_the_text(tmp_path):
    convert(tmp_path, "abcdefgh")
    message = "data.text.context: train has 8 tokens, a window of 8 needs 9; set it lower"
    with refuses(message):
        opened(tmp_path, context=8)
    with pytest.raises(ConfigError, match="a window of 5 needs 10"):
        opened(tmp_path, training=True, context=5)


def test_another_tokenizer_is_refused(tmp_path):
    convert(tmp_path, "abcdefgh")
    (tmp_path / "out/train" / FILE).write_bytes(bytes_of().content)
    with pytest.raises(RecordError, match="is not the one that the text was converted with"):
        opened(tmp_path, context=2)


def test_tokens():
    known = chars_of("banana")
    assert known.encode("nab").tolist() == [2, 0, 1]
    with refuses("tokenizer.json: has no number for the character 'd', the text's number 2", RecordError):
        known.encode("bad")
    with pytest.raises(RecordError, match=r"tokens lie in \[0, 3\), got 3"):
        known.decode([3])
    with pytest.raises(RecordError, match="is not JSON"):
        Tokens(b"{").encode("a")


def test_a_tokenizer_of_the_package(tmp_path):
    pytest.importorskip("tokenizers")
    words = {"peter": 0, "piper": 1, "picked": 2, "[UNK]": 300}
    document = {
        "version": "1.0", "added_tokens": [], "normalizer": None,
        "truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 2, "pad_type_id": 0,
            "pad_token": "picked",
        },
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
    }  # fmt: skip
    (tmp_path / "mine.json").write_text(json.dumps(document))
    assert convert(tmp_path, "peter piper walked", "--tokens", f"{tmp_path}/mine.json") == 0
    found = opened(tmp_path, context=1)
    assert found.stream.tolist() == [0, 1, 300]
    assert found.tokens.size == 301
    assert found.tokens.kind == "WordLevel"
    assert found.tokens.decode([1, 300]) == "piper [UNK]"
    alone = Tokens(json.dumps({**document, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}).encode())
    with pytest.warns(UserWarning, match="tokenizer.json: leaves out 'é'"):
        assert alone.encode("aé b").tolist() == [0, 1]
