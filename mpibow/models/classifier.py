"""Builds the training graph of a net: its input is pixels, its output one loss and one hit or miss a sample."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Protocol

from mpibow.graph import FLOAT, Graph, Shape, Tensor
from mpibow.ops import (
    accuracy,
    augment,
    centre_crop,
    cutout,
    jitter,
    mix,
    mix_shares,
    normalise,
    one_hot,
    soft_cross_entropy,
    softmax_cross_entropy,
)
from mpibow.ops.counted import counts_of, weigh
from mpibow.ops.dropout import counter_of

from .augmentation import Augmentation
from .losses import CrossEntropyLoss, Loss, function_of

Net = Callable[[Tensor], Tensor]  # image (n, ...) -> logits (n, classes)


class Build(Protocol):
    """Batch size -> graph, to train or to evaluate with. The weights depend on neither."""

    def __call__(self, batch: int, training: bool = False) -> Graph: ...


def classifier(
    net: Net,
    shape: Shape,
    dtype: str,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    *,
    augmentation: Augmentation | None = None,
    loss: Loss | None = None,
    top_k: int | None = None,
    weight: str | None = None,
) -> Build:
    """Graphs with inputs image (batch, *shape) and label (and counter, where random numbers are drawn).

    In training there is also the input `weight` (batch,), the samples' weights in the mean of the losses.

    Their outputs are loss, accuracy and logits, to evaluate with also top_k: hit or miss among the k likeliest. The net
    gets (image - mean) / std, or the stored values where none are given: std one a channel, mean as well, or one for
    every value of an image. `augmentation` and `loss` are for training; but evaluated images are cropped as well.
    """
    augmentation = augmentation or Augmentation()
    loss = loss or CrossEntropyLoss()
    plain = CrossEntropyLoss() if isinstance(loss, CrossEntropyLoss) else loss

    def build(batch: int, training: bool = False) -> Graph:
        graph = Graph(training)
        image = graph.input("image", (batch, *shape), dtype)
        label = graph.input("label", (batch,), "int32")
        scale = partial(normalise, mean=tuple(mean or (0.0,) * shape[0]), std=tuple(std or (1.0,) * shape[0]))
        scaled = _seen(image, augmentation, scale, training, whole=mean is not None and len(mean) > shape[0])
        share = mix_shares(counter_of(image), augmentation.mixup) if training and augmentation.mixup else None
        logits = graph.output("logits", net(scaled if share is None else mix(scaled, share)))
        show_loss(_loss(logits, label, share, loss if training else plain), batch, weight if training else None)
        graph.output("accuracy", accuracy(logits, label))
        if top_k is not None and not training:
            graph.output("top_k", accuracy(logits, label, top_k))
        return graph

    return build


def show_loss(loss: Tensor, batch: int, weight: str | None) -> Tensor:
    """The outputs loss, weighed by the input `weight` if there is one, and count, where samples count unequally."""
    if weight is not None:
        loss = weigh(loss, loss.graph.input(weight, (batch,), FLOAT))
    loss.graph.output("loss", loss)
    if (counts := counts_of(loss)) is not None:
        loss.graph.output("count", counts)
    return loss


def _loss(logits: Tensor, label: Tensor, share: Tensor | None, settings: Loss) -> Tensor:
    """The loss of classes, or of their one-hot rows where the loss compares numbers."""
    if isinstance(settings, CrossEntropyLoss) and settings.weight is not None:
        more = (1.0,) * (logits.shape[1] - len(settings.weight))  # of classes that the training data do not have
        return function_of(replace(settings, weight=(*settings.weight, *more)))(logits, label)
    if isinstance(settings, CrossEntropyLoss) and share is None:
        return softmax_cross_entropy(logits, label, smoothing=settings.label_smoothing, ignore=settings.ignore_index)
    target = one_hot(label, logits.shape[1])
    target = target if share is None else mix(target, share)
    if isinstance(settings, CrossEntropyLoss):
        return soft_cross_entropy(logits, target, smoothing=settings.label_smoothing)
    return function_of(settings)(logits, target)


def _seen(
    image: Tensor, settings: Augmentation, scale: Callable[[Tensor], Tensor], training: bool, whole: bool
) -> Tensor:
    """The image moved, in other colours, scaled, with a square cut out: bytes until they are scaled.

    With `whole` it is moved after its colours and the scaling: a mean image is subtracted where its pixels lie, and
    the padding is the mean (He et al., arXiv:1512.03385, section 4.2).
    """
    if whole:
        seen = _placed(scale(_coloured(image, settings, training)), settings, training)
    else:
        seen = scale(_coloured(_placed(image, settings, training), settings, training))
    return cutout(seen, settings.cutout) if training and settings.cutout else seen


def _placed(image: Tensor, settings: Augmentation, training: bool) -> Tensor:
    crop = None if settings.crop is None else (settings.crop, settings.crop)
    if training and settings.of_places:
        return augment(image, pad=settings.pad, crop=crop, flip=settings.flip)
    return image if crop is None else centre_crop(image, crop)


def _coloured(image: Tensor, settings: Augmentation, training: bool) -> Tensor:
    if not training or settings.jitter is None or not settings.of_colours:
        return image
    return jitter(image, **asdict(settings.jitter))
