"""Operators that stand for several nodes of a user's graph, for kernel sets that compute them in one pass."""

from mpibow.graph import OUTPUT, InputNumbers, Op, Shape, Weights

from .activation import Relu
from .attention import Attention
from .batch_norm import BatchNorm
from .combine import Add
from .conv import Conv2d
from .matmul import Matmul


class ConvRelu(Op):
    """y = max(conv(x), 0)."""

    conv: Conv2d
    kind = "conv+relu"
    reads = "xwy"

    def infer(self, x: Shape) -> Shape:
        return self.conv.infer(x)

    def weights(self, x: Shape) -> Weights:
        return self.conv.weights(x)


class ConvNormAddRelu(Op):
    """y = batch_norm(conv(x0)), + x1 where `added`, then max(., 0) where `relu`: evaluation only.

    Weights are the convolution's, and batch_norm.weight and batch_norm.bias; statistics alike.
    """

    conv: Conv2d
    norm: BatchNorm
    added: bool
    relu: bool
    kind = "conv+norm+add+relu"
    differentiable = None

    def infer(self, x: Shape, *added: Shape) -> Shape:
        return self.conv.infer(x)


class NormAddRelu(Op):
    """y = max(batch_norm(x0), + x1 where `added`, 0)."""

    norm: BatchNorm
    added: bool
    kind = "norm+add+relu"
    reads = "xwy"

    @property
    def differentiable(self) -> InputNumbers:
        return (0, 1) if self.added else (0,)

    def infer(self, x: Shape, *added: Shape) -> Shape:
        return self.norm.infer(x)

    def weights(self, x: Shape, *added: Shape) -> Weights:
        return self.norm.weights(x)

    def statistics(self, x: Shape, *added: Shape) -> Weights:
        return self.norm.statistics(x)


class AddRelu(Op):
    """y = max(x0 + x1, 0)."""

    kind = "add+relu"
    reads = "y"
    differentiable = (0, 1)

    def shares(self, i: int) -> int | None:
        return 0 if i == 1 else None


class _Expanding(Op):
    """Of x1, and of x0 broadcast to it."""

    differentiable = (0, 1)

    def infer(self, small: Shape, large: Shape) -> Shape:
        return large


class ExpandAdd(_Expanding):
    """y = x1 + x0 broadcast to it."""

    kind = "expand+add"

    def shares(self, i: int) -> int | None:
        return OUTPUT if i == 1 else None


class ExpandMultiply(_Expanding):
    """y = x1 times x0 broadcast to it."""

    kind = "expand+multiply"
    reads = "x"


class TurnedMatmul(Op):
    """y = a b, with the last two axes of each `turned` factor exchanged."""

    turned: tuple[bool, bool]
    kind = "turned+matmul"
    reads = "x"
    differentiable = (0, 1)

    def straight(self, *shapes: Shape) -> tuple[Shape, Shape]:
        """The shapes of the product's factors."""
        a, b = ((*x[:-2], x[-1], x[-2]) if turned else x for x, turned in zip(shapes, self.turned, strict=True))
        return a, b

    def infer(self, *shapes: Shape) -> Shape:
        return Matmul().infer(*self.straight(*shapes))


class HeadsAttention(Op):
    """Attention of heads side by side: q (n, t, heads d), k (n, s, heads d), v (n, s, heads e) -> (n, t, heads e).

    Where they are `packed` the one input (n, t, 3 heads d) has q, k and v side by side. A mask, the input behind these,
    is for (n, heads, t, s).
    """

    attention: Attention
    heads: int
    packed: bool
    kind = "heads+attention"
    reads = "x"

    @property
    def differentiable(self) -> InputNumbers:
        return (0, 1) if self.packed else (0, 1, 2, 3)

    def apart(self, *shapes: Shape) -> tuple[Shape, ...]:
        """The inputs' shapes as attention has them: (n, heads, t, d) ..., and the mask's."""
        count = 1 if self.packed else 3
        parts = 3 // count
        three = [(n, self.heads, t, width // parts // self.heads) for n, t, width in shapes[:count]] * parts
        return (*three, *shapes[count:])

    def infer(self, *shapes: Shape) -> Shape:
        n, heads, t, e = self.attention.infer(*self.apart(*shapes))
        return n, t, heads * e


# The chains of nodes that these stand for (mpibow.graph.rewrite.Fusion).


def with_relu(chain: tuple[Op, ...]) -> Op | None:
    """In training, too: that needs the values between convolution and batch norm."""
    match chain:
        case (Conv2d() as conv, Relu()):
            return ConvRelu(conv)
        case (BatchNorm(sync="learner") as norm, Relu()):
            return NormAddRelu(norm, added=False)
        case (BatchNorm(sync="learner") as norm, Add((1.0, 1.0)), Relu()):
            return NormAddRelu(norm, added=True)
        case (Add((1.0, 1.0)), Relu()):
            return AddRelu()
    return None


def with_norm(chain: tuple[Op, ...]) -> Op | None:
    """In evaluation, where a norm goes by running statistics."""
    match chain:
        case (Conv2d() as conv, BatchNorm() as norm, *rest):
            added = rest[:1] == [Add((1.0, 1.0))]
            relu = rest[-1:] == [Relu()]
            if len(rest) == added + relu and (relu or not added):
                return ConvNormAddRelu(conv, norm, added=added, relu=relu)
    return None
