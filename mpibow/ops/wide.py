"""Operators of several replicas at once (fused learners): their channels, or features, stand beside one another."""

from dataclasses import replace
from math import prod

from mpibow.errors import ShapeError
from mpibow.graph import Shape, Weight, Weights

from .concat import Concat, PadChannels
from .dropout import Dropout
from .local_response import LocalResponseNorm
from .matmul import Dense
from .norms import LayerNorm
from .softmax import Softmax


def _beside(weights: Weights, replicas: int) -> dict[str, Weight]:
    """The weights of all replicas, one behind the other."""
    return {key: replace(w, shape=(replicas * w.shape[0], *w.shape[1:])) for key, w in weights.items()}


class WideDense(Dense):
    """x (n, k f) -> (n, k units): replica r's features by its own weights, rows r units to (r + 1) units."""

    replicas: int = 1
    kind = "wide_dense"

    def infer(self, x: Shape) -> Shape:
        if len(x) != 2:
            raise ShapeError(f"dense of more axes than (batch, features), {x}, has no form for fused learners")
        n, features = x
        return n, self.replicas * super().infer((n, features // self.replicas))[1]

    def weights(self, x: Shape) -> Weights:
        n, features = x
        return _beside(super().weights((n, features // self.replicas)), self.replicas)


class WidePadChannels(PadChannels):
    """x (n, k c, ...) -> (n, channels, ...): zeros behind every replica's channels."""

    replicas: int = 1
    kind = "wide_pad_channels"


class WideConcat(Concat):
    """Along channels, replica by replica."""

    replicas: int = 1
    kind = "wide_concat"


class WideDropout(Dropout):
    """x (n, k c, ...) and counters (n, 4 k): replica r's channels by its own counters, as without other replicas."""

    replicas: int = 1
    kind = "wide_dropout"

    def infer(self, x: Shape, counter: Shape) -> Shape:
        if counter != (x[0], 4 * self.replicas):
            raise ShapeError(f"the counters must be (batch, {4 * self.replicas})")
        return x


class WideLayerNorm(LayerNorm):
    """x (n, k c, ...): over the last `axes` axes of every replica's own, by its own weights."""

    replicas: int = 1
    kind = "wide_layer_norm"

    def rows(self, x: Shape) -> int:
        """How many rows, one after the other, share weights: those of a sample of a replica."""
        return 1 if self.axes == len(x) - 1 else prod(x[1 : len(x) - self.axes]) // self.replicas

    def weights(self, x: Shape) -> Weights:
        k = self.replicas
        return _beside(super().weights((x[0], x[1] // k, *x[2:])), k)


class WideLocalResponseNorm(LocalResponseNorm):
    """Across the channels of every replica by itself."""

    replicas: int = 1
    kind = "wide_local_response_norm"


class WideSoftmax(Softmax):
    """Along channels, replica by replica."""

    replicas: int = 1
    kind = "wide_softmax"


class Beside(Concat):
    """As Concat, for numbers of any type."""

    kind = "beside"
