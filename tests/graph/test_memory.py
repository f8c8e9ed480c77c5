"""The memory plan: values that are alive together never share bytes."""

from itertools import combinations

import pytest
from hypothesis import given, settings, strategies as st

from mpibow.graph.memory import ALIGNMENT, ORDERS, Block, lifetimes, peak, place

EXTENTS = st.tuples(st.integers(0, 400), st.integers(0, 12), st.integers(0, 12))


def blocks_of(extents: list[tuple[int, int, int]]) -> list[Block]:
    return [Block(f"v{i}", size, min(a, b), max(a, b)) for i, (size, a, b) in enumerate(extents)]


def alive_together(a: Block, b: Block) -> bool:
    return any(step in range(b.first, b.last + 1) for step in range(a.first, a.last + 1))


def share_bytes(a: Block, b: Block, offsets: dict[str, int]) -> bool:
    start = max(offsets[a.name], offsets[b.name])
    return start < min(offsets[a.name] + a.size, offsets[b.name] + b.size)


@settings(max_examples=300)
@given(st.lists(EXTENTS, max_size=25))
def test_blocks_alive_together_never_share_bytes(extents):
    blocks = blocks_of(extents)
    offsets, arena = place(blocks)
    assert offsets.keys() == {block.name for block in blocks}
    for block in blocks:
        assert offsets[block.name] % ALIGNMENT == 0
        assert offsets[block.name] in range(arena - block.size + 1)
    for a, b in combinations(blocks, 2):
        assert not (alive_together(a, b) and share_bytes(a, b, offsets)), (a, b, offsets)
    assert arena >= peak(blocks)
    assert arena <= sum(-(-block.size // ALIGNMENT) * ALIGNMENT for block in blocks)


def slow_place(blocks: list[Block]) -> dict[str, int]:
    """By definition, line by line: the smallest run of free lines that fits, the lowest of equals, else on top."""
    lines = {}
    for block in blocks:
        taken = {
            i for other in blocks if other.name in lines and alive_together(block, other) for i in lines[other.name]
        }
        top, count = max(taken, default=-1) + 1, -(-block.size // ALIGNMENT)
        runs, run = [], 0
        for i in range(top + 1):
            if i not in taken and i < top:
                run += 1
            elif run:
                runs.append((run, i - run))
                run = 0
        start = min(((n, begin) for n, begin in runs if n >= count), default=(0, top))[1]
        lines[block.name] = range(start, start + count)
    return {name: taken.start * ALIGNMENT for name, taken in lines.items()}


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 8), st.integers(0, 8)), max_size=25))
def test_offsets_are_those_of_the_slow_definition(extents):
    blocks = blocks_of(extents)
    by_order = [slow_place(sorted(blocks, key=lambda b: (*order(b), b.name))) for order in ORDERS]
    sizes = {block.name: -(-block.size // ALIGNMENT) * ALIGNMENT for block in blocks}
    arenas = [max((offset + sizes[name] for name, offset in found.items()), default=0) for found in by_order]
    good = [i for i, arena in enumerate(arenas) if arena <= 1.01 * peak(blocks)]
    tried = arenas[: good[0] + 1] if good else arenas
    assert place(blocks) == (by_order[tried.index(min(tried))], min(tried))


@given(st.lists(EXTENTS, max_size=15), st.randoms(use_true_random=False))
def test_the_order_of_the_blocks_does_not_matter(extents, random):
    blocks = blocks_of(extents)
    shuffled = list(blocks)
    random.shuffle(shuffled)
    assert place(shuffled) == place(blocks)


@given(st.lists(EXTENTS, max_size=25))
def test_peak_is_the_largest_sum_alive_at_a_step(extents):
    blocks = blocks_of(extents)
    sums = [sum(-(-b.size // 64) * 64 for b in blocks if b.first <= step <= b.last) for step in range(13)]
    assert peak(blocks) == max(sums)


def test_nothing_needs_nothing():
    assert place([]) == ({}, 0)
    assert peak([]) == 0


def test_one_after_the_other_share_their_bytes():
    assert place([Block("a", 100, 0, 1), Block("b", 100, 2, 3)]) == ({"a": 0, "b": 0}, 128)


def test_a_block_is_kept_at_its_last_step_too():
    assert place([Block("a", 100, 0, 2), Block("b", 100, 2, 3)]) == ({"a": 0, "b": 128}, 256)


def test_the_smallest_gap_that_fits_is_taken():
    blocks = [
        Block("floor", 1024, 0, 9),
        Block("wide", 512, 0, 0),  # gone when `late` and `small` come: leaves 512 bytes between floor and ledge
        Block("ledge", 448, 0, 9),
        Block("narrow", 256, 0, 0),  # leaves 256 bytes between ledge and roof
        Block("roof", 192, 0, 9),
        Block("late", 128, 5, 6),  # fits both: takes the narrow one
        Block("small", 64, 5, 6),
    ]
    offsets, arena = place(blocks)
    assert arena == peak(blocks) == 1024 + 512 + 448 + 256 + 192
    assert offsets == {
        "floor": 0,
        "wide": 1024,
        "ledge": 1536,
        "narrow": 1984,
        "roof": 2240,
        "late": 1984,
        "small": 2112,
    }


def test_lifetimes():
    uses = [["a", "b"], ["b", "c"], [], ["c", "b"], ["d"]]
    assert lifetimes(uses, []) == {"a": (0, 0), "b": (0, 3), "c": (1, 3), "d": (4, 4)}
    assert lifetimes(uses, ["a", "c", "unknown"]) == {"a": (0, 4), "b": (0, 3), "c": (1, 4), "d": (4, 4)}
    assert lifetimes([], ["a"]) == {}


@pytest.mark.parametrize(("size", "taken"), [(0, 0), (1, 64), (63, 64), (64, 64), (65, 128)])
def test_sizes_are_rounded_up_to_cache_lines(size, taken):
    assert place([Block("a", size, 0, 0)])[1] == peak([Block("a", size, 0, 0)]) == taken
