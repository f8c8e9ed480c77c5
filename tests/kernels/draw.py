"""Shapes and settings at random: what the operators' strategies draw from."""

from collections.abc import Callable

from hypothesis import strategies as st

from mpibow.graph import FLOAT, Shape
from tests.kernels.cases import Case

Cases = st.SearchStrategy[Case]
LAYOUTS = ("abcd", "acdb", "aBcd16b", "aBcd8b")  # that an image may come in
WORD = 1 << 32
sides = st.integers(1, 9)
channels = st.one_of(st.integers(1, 5), st.sampled_from([8, 15, 16, 17, 32, 40]))
counts, replicas = st.integers(1, 6), st.integers(1, 4)
pairs = st.tuples(*[st.integers(1, 4)] * 2)
images = st.tuples(st.integers(1, 3), channels, sides, sides)
rows = st.tuples(st.integers(1, 9), st.integers(1, 70))
long = st.tuples(st.integers(1, 2), st.integers(1, 3000))
tensors = st.one_of(images, rows, long, st.tuples(counts, st.integers(1, 9), st.integers(1, 12)))
smoothings = st.sampled_from([0.0, 0.1, 0.5])
labels = st.sampled_from(["int32", "int64"])
pixels = st.sampled_from(["uint8", FLOAT])


def one(op, shapes: st.SearchStrategy = tensors, positive: bool = False) -> Cases:
    return shapes.map(lambda shape: Case(op, (shape,), positive=positive))


def several(make: Callable, least: int = 2) -> Cases:
    """Of inputs of one shape."""
    return st.builds(lambda n, shape: Case(make(n), (shape,) * n), st.integers(least, 6), tensors)


def counted(make: Callable, *dtypes: str) -> Cases:
    """Of images and a counter a sample; make(draw, shape)."""

    @st.composite
    def cases(draw: st.DrawFn) -> Case:
        side = st.one_of(st.integers(1, 12), st.integers(1, 40))
        shape = (draw(counts), draw(st.integers(1, 4)), draw(side), draw(side))
        return Case(make(draw, shape), (shape, (shape[0], 4)), (draw(st.sampled_from(dtypes)), "uint32"), WORD)

    return cases()


@st.composite
def indexed(draw: st.DrawFn) -> tuple[Shape, int, Shape]:
    """A shape, an axis, and the shape of indices along it, up to one more than there are elements."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = draw(st.integers(0, len(shape) - 1))
    return shape, axis, tuple(draw(st.integers(1, 6 if i == axis else extent)) for i, extent in enumerate(shape))
