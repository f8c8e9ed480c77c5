"""Every metric beside scikit-learn's, however samples are cut into batches."""

import numpy as np
import pytest

from mpibow.errors import ConfigError
from mpibow.metrics import METRICS
from mpibow.metrics.classes import F1, AccuracyMetric, Confusion, MeanIou, Perplexity, TopK
from mpibow.metrics.metric import total
from mpibow.metrics.numbers import R2, Mae, Mse, Rmse
from tests.refusals import refuses

scores = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed: pip install 'mpibow[digits]'")
RANDOM = np.random.default_rng(5)
N, CLASSES = 101, 5
LOGITS, LABELS = RANDOM.standard_normal((N, CLASSES)), RANDOM.integers(0, CLASSES - 1, N)  # the last never occurs
LOGITS[:, CLASSES - 1] -= 9  # nor is predicted
GUESSES = LOGITS.argmax(axis=1)
X, Y = RANDOM.standard_normal(N) + 40, RANDOM.standard_normal(N) + 40
TABLE_X, TABLE_Y = RANDOM.standard_normal((N, 3)), RANDOM.standard_normal((N, 3)) + np.array([0, 10, 300])
MANY, TAGS = RANDOM.standard_normal((N, 4)), (RANDOM.random((N, 4)) > 0.6).astype(np.float64)


def losses():
    likely = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    return -np.log(likely[np.arange(N), LABELS])


CASES = {
    "accuracy": (AccuracyMetric(), LOGITS, LABELS, lambda: scores.accuracy_score(LABELS, GUESSES)),
    "accuracy of several labels": (AccuracyMetric(), MANY, TAGS, lambda: ((MANY > 0) == (TAGS > 0)).mean()),
    "accuracy of one label": (AccuracyMetric(), X - 40, (Y > 40) * 1.0, lambda: scores.accuracy_score(Y > 40, X > 40)),
    "top_k": (TopK(k=3), LOGITS, LABELS,
              lambda: scores.top_k_accuracy_score(LABELS, LOGITS, k=3, labels=range(CLASSES))),
    "perplexity": (Perplexity(), LOGITS, LABELS, lambda: np.exp(losses().mean())),
    "f1 macro": (F1(), LOGITS, LABELS, lambda: scores.f1_score(LABELS, GUESSES, average="macro")),
    "f1 micro": (F1(average="micro"), LOGITS, LABELS, lambda: scores.f1_score(LABELS, GUESSES, average="micro")),
    "f1 binary": (F1(average="binary"), LOGITS[:, :2], LABELS % 2,
                  lambda: scores.f1_score(LABELS % 2, LOGITS[:, :2].argmax(axis=1))),
    "f1 of several labels": (F1(), MANY, TAGS, lambda: scores.f1_score(TAGS, MANY > 0, average="macro")),
    "f1 micro of several": (F1(average="micro"), MANY, TAGS, lambda: scores.f1_score(TAGS, MANY > 0, average="micro")),
    "f1 of labels along axis 1": (F1(axis=1), MANY[..., None], TAGS[..., None],
                                  lambda: scores.f1_score(TAGS, MANY > 0, average="macro")),
    "mean_iou of labels along an axis": (MeanIou(axis=-1), MANY[:, None], TAGS[:, None],
                                         lambda: scores.jaccard_score(TAGS, MANY > 0, average="macro")),
    "mean_iou": (MeanIou(), LOGITS, LABELS, lambda: scores.jaccard_score(LABELS, GUESSES, average="macro")),
    "confusion": (Confusion(), LOGITS, LABELS,
                  lambda: scores.confusion_matrix(LABELS, GUESSES, labels=range(CLASSES))),
    "mae": (Mae(), X, Y, lambda: scores.mean_absolute_error(Y, X)),
    "mse": (Mse(), TABLE_X, TABLE_Y, lambda: scores.mean_squared_error(TABLE_Y, TABLE_X)),
    "rmse": (Rmse(), X, Y, lambda: np.sqrt(((X - Y) ** 2).mean())),
    "r2": (R2(), X, Y, lambda: scores.r2_score(Y, X)),
    "r2 of three": (R2(), TABLE_X, TABLE_Y, lambda: scores.r2_score(TABLE_Y, TABLE_X)),
    "r2 of one value": (R2(), X, np.full(N, 40.1), lambda: scores.r2_score(np.full(N, 40.1), X)),
}  # fmt: skip


def test_every_metric_has_a_case():
    assert {type(case[0]) for case in CASES.values()} == {*METRICS.values()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 7, 50, N])
def test_it_is_scikit_learn_s_whatever_the_batches(name, size):
    metric, output, target, expected = CASES[name]
    parts = [metric.sums(output[i : i + size], target[i : i + size]) for i in range(0, N, size)]
    np.testing.assert_allclose(metric.close(total(parts)), expected(), rtol=1e-12)


@pytest.mark.parametrize("metric", [AccuracyMetric(), TopK(k=2), Perplexity(), F1(), MeanIou(), Confusion()])
def test_classes_along_other_axes_and_labels_left_out(metric):
    logits, label = RANDOM.standard_normal((6, 3, 4, 2)), RANDOM.integers(0, 3, (6, 4, 2))
    rows, flat = np.moveaxis(logits, 1, -1).reshape(-1, 3), label.reshape(-1)
    expected = metric.close(metric.sums(rows, flat))
    assert np.array_equal(metric.close(metric.sums(logits, label)), expected)
    assert np.array_equal(metric.close(metric.sums(np.moveaxis(logits, 1, -1), label)), expected)
    left_out = np.where(RANDOM.random(label.shape) < 0.3, -100, label)
    kept = left_out.reshape(-1) != -100
    assert np.array_equal(
        metric.close(metric.sums(logits, left_out)), metric.close(metric.sums(rows[kept], flat[kept]))
    )


@pytest.mark.parametrize("metric", [AccuracyMetric(), F1(), MeanIou()])
def test_labels_left_out_of_several(metric):
    kept = np.arange(N) % 3 > 0
    found = metric.close(metric.sums(MANY[:, 0], np.where(kept, TAGS[:, 0], -100)))
    assert found == metric.close(metric.sums(MANY[kept, 0], TAGS[kept, 0]))


def test_the_first_of_equal_classes_is_the_likelier():
    logits, labels = np.zeros((3, 3)), np.array([0, 1, 2])
    assert [TopK(k=k).close(TopK(k=k).sums(logits, labels)) for k in (1, 2, 3)] == [1 / 3, 2 / 3, 1.0]
    bad = np.array([[np.nan, 1.0, 2.0]])
    assert TopK(k=2).close(TopK(k=2).sums(bad, np.array([0]))) == 0.0


@pytest.mark.parametrize(
    ("metric", "output", "target", "said"),
    [
        (Mae(), (4, 1), (4,), "output (4, 1), target (4,): must have one shape; mb.reshape the output"),
        (AccuracyMetric(), (4, 3), (4, 2),
         "output (4, 3), target (4, 2): the target must have the output's shape without the axis of the classes"),
        (AccuracyMetric(), (4, 3, 3), (4, 3),
         "output (4, 3, 3), target (4, 3): the classes may be axis 1 or 2; give the option axis"),
        (TopK(k=4), (4, 3), (4,), "k must be at most the 3 classes, got 4"),
        (F1(), (4, 2, 3), (4, 2, 3), "several labels (4, 2, 3): axis, along which they lie, must be 1 or more"),
        (F1(axis=-2), (4, 3), (4, 3), "several labels (4, 3): axis, along which they lie, must be 1 or more"),
        (F1(average="binary"), (4, 2), (4, 2), "f1: average binary is of one label, got 2; give macro or micro"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit(metric, output, target, said):
    with refuses(said):
        metric.sums(np.zeros(output), np.zeros(target, np.int64))


def test_labels_that_are_no_class():
    with pytest.raises(ConfigError, match=r"labels must lie in \[0, 3\), got 0 to 3; the option ignore_index"):
        AccuracyMetric().sums(np.zeros((2, 3)), np.array([0, 3]))
    assert AccuracyMetric(axis=2).rows(np.zeros((2, 3, 3)), np.zeros((2, 3)))[0].shape == (6, 3)
