"""Figures: what is drawn in them is what the curves say, files are whole and the same every time, errors are clear."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from mpibow import plot
from mpibow.run.series import PANELS, RunLog, clock, curves, read_run
from tests.launching import run as launch
from tests.refusals import refuses

BLUE, RED = plot.COLOURS[:2]


def lines(entries: int = 4, ranks: int = 2, speed: float = 10.0) -> list[dict]:
    """Events of a made-up run: 10 samples an entry, 20 an epoch."""
    events = [{"event": "start", "time": 0.0, "position": 0, "epoch": 0.0, "learners": [1] * ranks}]
    for i in range(1, entries + 1):
        where = {"time": float(i), "position": 10 * i, "epoch": i / 2, "elapsed": 10 * i / speed}
        numbers = {"loss": 1 / i, "accuracy": 1 - 1 / (i + 1), "data_wait": 0.125, "sync_wait": 0.25}
        events.append({"event": "train", **where, **numbers, "learners": [i // 2 + 1] * ranks, "sync_hidden": 0.5})
        events.append({"event": "evaluate", "data": "test", **where, "loss": 2 / i, "accuracy": 1 - 1 / (i + 2)})
    return events


def made(label: str, **options) -> RunLog:
    events = lines(**options)
    return RunLog(label, tuple(events), tuple(clock(events)))


def write(folder: Path, events: list[dict]) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def drawn(axes, colour: str) -> list[tuple[list[float], list[float]]]:
    found = [line for line in axes.get_lines() if line.get_color() == colour]
    return [(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) for line in found]


def titles(figure) -> list[tuple[str, str]]:
    return [(axes.get_title(loc="left"), axes.get_xlabel()) for axes in figure.axes]


@pytest.mark.parametrize("axis", ["samples", "epochs", "seconds"])
def test_what_is_drawn_is_what_the_curves_say(axis):
    runs = [made("a"), made("b", entries=6, speed=5.0)]
    figure = plot.draw(runs, axis=axis, smooth=1)
    assert len(figure.axes) == len(PANELS)
    for panel, axes in zip(PANELS, figure.axes, strict=True):
        for run, colour in zip(runs, (BLUE, RED), strict=True):
            found = [(curve.x, curve.y) for curve in curves(run, panel, axis, 1, aside=True)]
            assert found
            assert drawn(axes, colour) == found


def test_smoothed_curves_have_the_raw_ones_behind_them():
    figure = plot.draw([made("a")], ["loss"], "samples", smooth=2)
    test, training = curves(made("a"), "loss", "samples", 2)
    assert drawn(figure.axes[0], BLUE) == [(test.x, test.y), (training.x, training.raw), (training.x, training.y)]


@pytest.mark.parametrize(
    ("seconds", "unit", "last"),
    [(119, "s", 119), (120, "min", 2), (7199, "min", 7199 / 60), (7200, "h", 2), (172800, "days", 2)],
)
def test_units_of_time(seconds, unit, last):
    figure = plot.draw([made("a", speed=40 / seconds)], ["speed"])  # 40 samples in all
    assert figure.axes[0].get_xlabel() == f"training time, {unit}"
    assert drawn(figure.axes[0], BLUE)[0][0][-1] == pytest.approx(last)


def test_a_legend_of_runs_or_of_ranks():
    two = plot.draw([made("small"), made("large", speed=20.0)])
    assert [text.get_text() for text in two.legends[0].get_texts()] == ["small", "large"]
    assert [line.get_color() for line in two.legends[0].get_lines()] == [BLUE, RED]
    assert titles(two)[5][0] == "learners of all ranks"
    assert two.axes[5].get_legend() is None
    one = plot.draw([made("small")])
    assert not one.legends
    learners, waits = one.axes[5].get_legend(), one.axes[6].get_legend()
    assert [text.get_text() for text in learners.get_texts()] == ["each of 2 ranks"]
    assert [text.get_text() for text in waits.get_texts()] == ["data", "averaging"]
    assert [axes.get_legend() is not None for axes in one.axes[:4]] == [True, False, True, False]


def test_steps_start_at_nothing_and_a_wide_loss_is_logarithmic():
    figure = plot.draw([made("a", entries=30)], axis="samples")
    found = dict(zip(PANELS, figure.axes, strict=True))
    assert found["learners"].get_lines()[0].get_drawstyle() == "steps-post"
    assert found["loss"].get_yscale() == "log"  # from 2 to 1/30
    assert [found[panel].get_ylim()[0] for panel in ("speed", "learners", "waits", "hidden")] == [0, 0, 0, 0]
    assert all(axes.get_xlim()[0] == 0 for axes in figure.axes)
    assert plot.draw([made("a")], ["loss"]).axes[0].get_yscale() == "linear"  # from 2 to 1/4


def test_cells_of_an_odd_number_do_not_lie_over_each_other():
    """A run of one rank hides nothing: seven cells."""
    events = [{key: value for key, value in event.items() if key != "sync_hidden"} for event in lines(ranks=1)]
    figure = plot.draw([RunLog("a", tuple(events), tuple(clock(events)))])
    assert len(figure.axes) == 7
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    for i, box in enumerate(boxes):
        assert not any(box.shrunk(0.999, 0.999).overlaps(other) for other in boxes[:i])


def test_a_single_point_can_be_seen():
    figure = plot.draw([made("a", entries=1)], ["speed"])
    (line,) = (line for line in figure.axes[0].get_lines() if line.get_color() == BLUE)
    assert line.get_marker() == "o"


def test_what_a_run_lacks_is_left_out():
    events = [event for event in lines() if event["event"] != "evaluate"]
    without = RunLog("a", tuple(events), tuple(clock(events)))
    figure = plot.draw([without, made("b")], ["accuracy"], "samples", smooth=1)
    assert [len(drawn(figure.axes[0], colour)) for colour in (BLUE, RED)] == [1, 2]
    for event in events:
        event.pop("accuracy", None)
    losses = RunLog("a", tuple(events), tuple(clock(events)))
    assert [title for title, _ in titles(plot.draw([losses], ["accuracy", "loss"]))] == ["loss", "loss"]


def test_nothing_to_draw():
    with refuses(
        "a, b: no entries yet for accuracy, waits; log.every and evaluate.every set how often a run writes them"
    ):
        plot.draw([made("a", entries=0), made("b", entries=0)], ["accuracy", "waits"])


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_files_are_the_same_bytes_every_time(tmp_path, suffix, magic):
    files = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for file in files:
        plot.save(plot.draw([made("a"), made("b", speed=3.0)], ["loss"], "samples"), file)
    assert files[0].read_bytes().startswith(magic)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == files


def test_the_command(here: Path, capsys):
    """One run is drawn beside its metrics, several where one is; nothing but the figure is written."""
    one, two = write(here / "runs/one", lines()), write(here / "runs/two", lines(speed=3.0))
    assert plot.main(["runs/one", "--panels", "loss"]) == 0
    assert plot.main(["runs/one", "runs/two", "--panels", "speed,loss", "--x", "epochs", "--labels", "x, y"]) == 0
    assert plot.main(["runs/two", "--output", "figure.svg", "--panels", "loss", "--smooth", "3"]) == 0
    assert capsys.readouterr().out == "runs/one/plot.png\nplot.png\nfigure.svg\n"
    assert sorted(path.name for path in here.iterdir()) == ["figure.svg", "plot.png", "runs"]
    assert sorted(path.name for path in one.iterdir()) == ["metrics.jsonl", "plot.png"]
    assert sorted(path.name for path in two.iterdir()) == ["metrics.jsonl"]


def test_labels(tmp_path, monkeypatch):
    """A run's own name, and the path where two have the same."""
    seen = []
    monkeypatch.setattr(plot, "draw", lambda runs, *_: seen.append([run.label for run in runs]))
    monkeypatch.setattr(plot, "save", lambda *_: None)
    a, b, c = (str(write(tmp_path / name, lines())) for name in ("a/run", "b/run", "c"))
    for arguments in ([a, c], [a, b], [a, b, "--labels", "batch 4, batch 8"]):
        assert plot.main(arguments) == 0
    assert seen == [["run", "c"], [a, b], ["batch 4", "batch 8"]]


@pytest.mark.parametrize("names", [["a$_$"], ["$_$", "b$\\frac$"]])
def test_dollars_are_no_formula(here: Path, names):
    for name in names:
        write(here / name, lines())
    assert plot.main([*names, "--output", "both.svg"]) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gone"], 2, "gone: there is no such run directory; give one of those in `out`, as runs/NAME"),
        (["run", "--panels", "loss,speeds"], 2,
         "--panels: must be of accuracy, loss, speed, learners, waits, hidden, got 'speeds'"),
        (["run", "--output", "run.jpg"], 2, "--output: must end in .png, .svg, .pdf, got 'run.jpg'"),
        (["run", "--labels", "a,b"], 2, "--labels: must be one for each of 1 run(s), got 2: a,b"),
        (["broken"], 3, "broken/metrics.jsonl: line 2 is not an event of a run; remove it to draw the others"),
        (["empty"], 2,
         "empty: no entries yet for accuracy, loss, speed, learners, waits, hidden; "
         "log.every and evaluate.every set how often a run writes them"),
        (["run", "--panels", "loss", "--output", "none/plot.png"], 9,
         "none/plot.png: cannot be written: no such file or directory"),
    ],
)  # fmt: skip
def test_errors(
    here: Path, capsys,
    arguments, code, message,
):  # fmt: skip
    write(here / "run", lines())
    write(here / "empty", [])
    (write(here / "broken", []) / "metrics.jsonl").write_text('{"event": "start", "position": 0, "epoch": 0}\n{"ev\n\n')
    assert plot.main(arguments) == code
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"error: {message}\n")
    assert not list(here.glob("**/*.png"))


def test_without_matplotlib(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert plot.main([str(write(tmp_path / "run", lines()))]) == 1
    assert capsys.readouterr().err == "error: matplotlib is not installed: pip install -e '.[plot]'\n"


def test_a_run_under_way_from_the_shell(tmp_path):
    """The last line is half written; a user's own style changes nothing."""
    folder = write(tmp_path / "run", lines())
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"event": "train", "posi')
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\nsavefig.dpi: 30\n")
    done = launch([sys.executable, "-m", "mpibow.plot", "run", "--panels", "loss"], cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "run/plot.png\n", "")
    here = tmp_path / "here.png"
    plot.save(plot.draw([read_run(folder)], ["loss"]), here)
    assert here.read_bytes() == (folder / "plot.png").read_bytes()


def test_a_checkpoint_stands_for_its_run(tmp_path):
    checkpoint = tmp_path / "run" / "checkpoints" / "iteration-0000000004"
    checkpoint.mkdir(parents=True)
    (checkpoint / "checkpoint.json").write_text("{}")
    assert plot.run_of(checkpoint) == tmp_path / "run"
    assert plot.run_of(tmp_path / "run") == tmp_path / "run"
