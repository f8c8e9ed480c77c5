"""Packed sequences while torch.export reads a module: padded tensors with their lengths, by operators of tensors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import rnn

from mpibow.errors import ConfigError

RECURRENT = ("gru", "lstm", "rnn_relu", "rnn_tanh")
KEEPING = (-1e4, 1e4, 0.0, 0.0)  # added to the sums of an LSTM's gates, these keep its cells


class PackedOfUnknownLength:
    """Stands for a tensor whose length depends on the data: all that is done with it fails."""


class Packed:
    """Sequences x (n, t, features), of each of which the first `lengths` (n,) steps count.

    PyTorch's recurrent modules take it for a tensor, and their functions call `__torch_function__` with it.
    """

    def __init__(self, x: Tensor, lengths: Tensor):
        self.x = x
        self.lengths = lengths
        self.dtype = x.dtype
        self.device = x.device
        self.dim = x.dim
        behind = (lengths[:, None] - 1 - torch.arange(x.shape[1]))[..., None]  # (n, t, 1): steps to the last
        self.padding = behind < 0
        self.places = behind.clamp(min=0)

    def size(self, axis: int) -> Any:
        """The features, or the batch, which a module has as its first axis or its second."""
        return self.x.shape[2 if axis == -1 else 0]

    def filled(self, value: float) -> Tensor:
        return self.x.masked_fill(self.padding, value)

    def turned(self, x: Tensor, count: int | None = None) -> Tensor:
        """Steps of x (n, t, units) from the last that counts to the first, then any; the first `count` of these."""
        return x.gather(1, self.places[:, :count].expand(-1, -1, x.shape[2]))

    @classmethod
    def __torch_function__(cls, function: Callable[..., Any], types: object, args: Any, kwargs: object = None) -> Any:
        """All steps of the last layer, and the states of all layers and directions at the sequences' ends."""
        if function.__name__ not in RECURRENT:
            raise ConfigError(f"{function.__name__} takes no packed sequence")
        sequences, initial, weights, biases, layers, dropout, training, both, _ = args
        each = len(weights) // (layers * (1 + both))
        cells = function.__name__ == "lstm"

        def run(x: Tensor, number: int, *weights: Tensor) -> Any:
            states = [state[number : number + 1] for state in (initial if cells else [initial])]
            return function(x, states if cells else states[0], weights, biases, 1, 0.0, training, False, True)

        x = sequences.x
        ends = []
        for layer in range(layers):
            outputs = []
            for reverse in range(1 + both):
                number = layer * (1 + both) + reverse
                weight, *others = weights[each * number : each * (number + 1)]
                ahead = sequences.turned(x) if reverse else x
                y = run(ahead, number, weight, *others)[0]
                outputs.append(sequences.turned(y) if reverse else y)
                ends.append([sequences.turned(y, 1)[:, 0]])
                if cells:  # by a feature that keeps them through the padding
                    keeping = torch.tensor(KEEPING).to(x).repeat_interleave(len(weight) // 4)[:, None]
                    wide = torch.cat([ahead, sequences.padding.to(x)], 2)
                    ends[-1].append(run(wide, number, torch.cat([weight, keeping], 1), *others)[2][0])
            x = torch.cat(outputs, 2)
            if layer < layers - 1:
                x = torch.dropout(x, dropout, training)
        return Packed(x, sequences.lengths), *map(torch.stack, zip(*ends, strict=True))


# In place of PyTorch's functions of these names, and with their globals.


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> Packed:
    """Lengths that PyTorch refuses, 0 and those beyond the padding, become the nearest that it takes."""
    from mpibow.aten.packed import Packed  # its globals are another module's: not relative

    x = input if batch_first else input.transpose(0, 1)
    lengths = torch.as_tensor(lengths).long().clamp(1, x.shape[1])
    return Packed(Packed(x, lengths).filled(0.0), lengths)  # the padding may be NaN


def pad_packed_sequence(
    sequence: Packed, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor | PackedOfUnknownLength, Tensor]:
    from mpibow.aten.packed import PackedOfUnknownLength

    if total_length is None:
        return PackedOfUnknownLength(), sequence.lengths
    more = total_length - sequence.x.shape[1]
    y = torch.constant_pad_nd(sequence.filled(padding_value), (0, 0, 0, more), padding_value)
    return y if batch_first else y.transpose(0, 1), sequence.lengths


@contextmanager
def readable() -> Iterator[None]:
    """PyTorch's functions make and take `Packed`. Modules import them by name, so their code is exchanged."""
    pack = rnn.pack_padded_sequence
    unpack = rnn.pad_packed_sequence
    before = pack.__code__, unpack.__code__
    pack.__code__ = pack_padded_sequence.__code__
    unpack.__code__ = pad_packed_sequence.__code__
    try:
        yield
    finally:
        pack.__code__, unpack.__code__ = before
