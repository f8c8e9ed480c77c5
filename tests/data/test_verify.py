"""python -m mpibow.records verify: spread over processes, decoding, interrupted."""

import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from mpibow import records
from mpibow.data import verify, write_records
from tests.data.photos import encode
from tests.data.sets import flip

PIXELS = np.random.default_rng(1).integers(0, 256, (16, 16, 3), dtype=np.uint8)


def written(folder: Path, images: list[bytes], **options: object) -> Path:
    samples = zip(images, [0] * len(images), strict=True)
    options = {"encoding": "jpeg", "moments": ([1.0], [1.0]), "classes": 1} | options
    write_records(folder, samples, **options)
    return folder


@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers_says_the_same_in_order(tmp_path, capsys, monkeypatch, workers):
    monkeypatch.setattr(verify, "PIECE", 100)  # a record or two at once
    folder = written(tmp_path / "a", [bytes([n + 1]) * 10 for n in range(30)], shard_size=64 + 60)
    assert len(list(verify.set_tasks(folder, False))) > 10
    for shard, at in ((0, 64), (0, 64 + 55), (2, 70), (4, 70)):
        flip(folder / f"a-0000{shard}.mpr", at)
    flip(folder / "a-00003.mpr", 0)
    assert records.main(["verify", "--workers", str(workers), str(folder)]) == 3
    lines = capsys.readouterr().err.splitlines()
    starts = [
        "a-00000.mpr: record 0: checksum is 0x",
        "a-00000.mpr: record 5: checksum is 0x",
        "a-00002.mpr: record 0: checksum is 0x",
        "a-00003.mpr: is not a record file: it starts with b'\\x88MPR",
        "a-00004.mpr: record 0: checksum is 0x",
    ]
    assert [line.startswith(f"error: {folder}/{start}") for line, start in zip(lines, starts, strict=True)] == [
        True
    ] * 5


def test_pieces_are_all_records_once(tmp_path, monkeypatch):
    folder = written(tmp_path / "a", [b"abc"] * 10)
    (file,) = folder.glob("*.mpr")
    for piece in (1, 60, 100, 254, 10**6):
        monkeypatch.setattr(verify, "PIECE", piece)
        tasks = list(verify.set_tasks(folder, False))
        runs = [range(task.first, task.stop) for task in tasks if isinstance(task, verify.RecordRange)]
        assert [record for run in runs for record in run] == list(range(10))
        assert all(len(run) == max(1, 10 * piece // file.stat().st_size) for run in runs[:-1])


def test_a_shard_that_is_damaged_while_it_is_verified(tmp_path):
    folder = written(tmp_path / "a", [b"abc"] * 3)
    (task,) = verify.set_tasks(folder, False)
    flip(folder / "a-00000.mpr", -1)
    (message,), count = verify.check(task)
    assert message.startswith(f"{folder}/a-00000.mpr: the index's checksum is 0x")
    assert count == 0


def test_decode_names_what_cannot_be_decoded(tmp_path, capsys):
    jpeg, png = encode(Image.fromarray(PIXELS), "jpeg"), encode(Image.fromarray(PIXELS), "png")
    broken = bytearray(png)
    broken[png.index(b"IDAT") + 10] ^= 255
    jpegs = written(tmp_path / "jpegs", [jpeg, b"text", jpeg, jpeg[:-50], png, jpeg])
    pngs = written(tmp_path / "pngs", [png, bytes(broken), jpeg], encoding="png")
    raw = tmp_path / "raw"
    write_records(raw, [(PIXELS.transpose(2, 0, 1), 0)], classes=1)
    names = list(map(str, (jpegs, pngs, raw)))
    assert records.main(["verify", *names]) == 0  # the bytes are those that were written
    assert records.main(["verify", "--decode", *names]) == 3
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == f"{raw}: 1 records, all intact"
    again = "; convert the data again"
    lines = err.splitlines()
    assert len(lines) == 5
    assert lines[0] == f"error: {jpegs}/jpegs-00000.mpr: record 1: cannot be decoded: it is no JPEG image{again}"
    assert lines[1].startswith(f"error: {jpegs}/jpegs-00000.mpr: record 3: cannot be decoded: image file is truncated")
    assert lines[1].endswith(again)
    assert lines[2] == f"error: {jpegs}/jpegs-00000.mpr: record 4: cannot be decoded: it is no JPEG image{again}"
    assert lines[3].startswith(f"error: {pngs}/pngs-00000.mpr: record 1: cannot be decoded: ")
    assert lines[4] == f"error: {pngs}/pngs-00000.mpr: record 2: cannot be decoded: it is no PNG image{again}"


def test_a_png_that_claims_to_be_huge_is_refused_before_it_is_decoded(tmp_path):
    png = bytearray(encode(Image.fromarray(PIXELS), "png"))
    png[16:24] = (50_000).to_bytes(4, "big") * 2  # 7.5 GB decoded
    png[29:33] = zlib.crc32(png[12:29]).to_bytes(4, "big")
    folder = written(tmp_path / "a", [bytes(png)], encoding="png")
    (message,) = verify.damages(folder, decoded=True)
    assert message.startswith(
        f"{folder}/a-00000.mpr: record 0: cannot be decoded: image size (2500000000 pixels) exceeds "
    )


def test_little_to_do_starts_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "cores", lambda: 8)
    folder = written(tmp_path / "a", [b"abc"] * 3)
    (file,) = folder.glob("*.mpr")
    assert (records.useful(folder, False), records.useful(file, True)) == (1, 1)
    assert records.useful(tmp_path / "nowhere", False) == 1
    os.truncate(file, 3 * records.WORTH_DECODED + 5)
    assert (records.useful(folder, False), records.useful(file, True)) == (1, 4)
    os.truncate(file, 100 * records.WORTH)  # sparse
    assert (records.useful(folder, False), records.useful(file, True)) == (8, 8)


STARTED = """
import sys
from mpibow import records
from mpibow.system.streams import as_command
paths = sys.argv[1:] * 50_000  # a minute and more
as_command(lambda: print("ready", flush=True) or records.main(["verify", "--workers", "2", *paths]))
"""


@pytest.mark.parametrize("after", [0.05, 0.2, 0.4, 1.5])  # seconds: workers are just being started, or at work
def test_an_interrupt_ends_all_processes_quietly(tmp_path, after):
    command = [sys.executable, "-c", STARTED, str(written(tmp_path / "a", [b"abc"] * 3))]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(after)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal sends Ctrl-C: to workers as well
        _, err = process.communicate(timeout=720)
    assert (process.returncode, err) == (130, "interrupted\n")
    for _ in range(1000):  # the last of them sees that it is alone, and ends
        left = [other for other in psutil.process_iter(["status"]) if _group(other.pid) == process.pid]
        if not [other for other in left if other.info["status"] != psutil.STATUS_ZOMBIE]:
            break
        time.sleep(0.1)
    else:
        pytest.fail(f"still there: {left}")


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
