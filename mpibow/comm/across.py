"""Sums across nodes by messages that are polled, added up in the order of the nodes, however an array is cut."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from types import ModuleType
from typing import Any

import numpy as np

from .communicator import Array, Ready
from .shared import ENDED, WRITTEN, ByBoard, ByMessages, add_rows

PIECE = 2**18  # elements that are sent together
MESSAGE = 61440  # bytes; with longer ones Open MPI over TCP is half as fast where both sides send
UNDER_WAY = 3  # pieces at a time: one is added up while others travel
ONE_ROUND = 2**11  # elements up to which every node adds up all of them: more bytes, half the rounds
TAGS = 2**13  # of pieces, two each; MPI grants 2^15
MEETING = 2 * TAGS  # the tag of meetings
Waits = Iterator[Sequence[Any]]  # whenever work waits, the requests that it waits for


def in_parts(
    parts: Sequence[Sequence[Waits]], ready: Ready, board: ByBoard | None = None
) -> Iterator[tuple[int, int, Sequence[Any] | None]]:
    """Works on the pieces of an array's parts, each once all ranks of the node have written it; yields, whenever it may
    have to wait, how many of the parts are over on the node, and written by this rank, and the requests that it waits
    for; None: it may go on at once.

    `ready` is the number that this rank has written; `board` has those of the others, if there are any.
    """
    least = (lambda column, number: number) if board is None else board.least
    to_come = deque((i, piece) for i, part in enumerate(parts) for piece in part)
    under_way = deque[tuple[int, Waits]]()
    while True:
        written = least(WRITTEN, mine := ready())
        while to_come and to_come[0][0] < written and len(under_way) < UNDER_WAY:
            under_way.append(to_come.popleft())
        waits = deque(next(piece, None) for _, piece in under_way)  # None: it has ended, and stays so
        more = bool(to_come and waits) and waits[0] is None
        while under_way and waits[0] is None:
            under_way.popleft()
            waits.popleft()
        rest = under_way or to_come
        over = least(ENDED, min(rest[0][0] if rest else len(parts), written))
        yield over, mine, None if more else (waits and waits[0]) or ()


def narrowed(array: Array) -> Array:
    """float32 (n,) as the nearest bfloat16, of two the even one: uint16, the upper halves. NaN stays NaN."""
    bits = array.view(np.uint32)
    nearest = bits + (bits >> 16 & 1)
    nearest += 0x7FFF
    nearest[np.isnan(array)] = 0x7FC00000
    nearest >>= 16
    return nearest.astype(np.uint16)


def widened(array: Array) -> Array:
    """What `narrowed` gave as float32; any other array as it is."""
    return (array.astype(np.uint32) << 16).view(np.float32) if array.dtype == np.uint16 else array


class Across:
    """The ranks, one of every node, that hold the same share of an array."""

    def __init__(self, mpi: ModuleType, comm: Any, peers: Sequence[int], node: int, piece: int = PIECE) -> None:
        """`peers` are their ranks in `comm` by node, `node` is this rank's."""
        self._comm, self._peers, self._node, self._piece = comm, peers, node, piece
        self.nodes = len(peers)
        self._numbers = cycle(range(TAGS))
        self._others = [other for other in range(len(peers)) if other != node]
        self._are_over: Callable[[list[Any]], bool] = mpi.Request.Testall

    def pieces(self, rows: Array, narrow: bool) -> Iterator[Waits]:
        """The pieces of a sum of all nodes' rows, which goes into each of this node's, (ranks, n); all nodes work on
        them in this order. `narrow`: nodes send each other float32 as bfloat16, and add it up in float32."""
        for start in range(0, rows.shape[1], self._piece):
            yield self._add_up(rows[:, start : start + self._piece], 2 * next(self._numbers), narrow)

    def _add_up(self, rows: Array, tag: int, narrow: bool) -> Waits:
        """One piece; yields while it waits for messages. Each node adds up a part of it, and sends that to the others.

        The order is fixed: the sum of the first node, plus that of the second, and so on.
        """
        nodes, size = self.nodes, rows.shape[1]
        sums = add_rows(rows)
        sent = narrowed(sums) if narrow else sums
        whole = nodes == 2 or size <= ONE_ROUND  # of two nodes both send as many bytes either way
        parts = [slice(size) if whole else slice(size * i // nodes, size * (i + 1) // nodes) for i in range(nodes)]
        mine = sent[parts[self._node]]
        terms = [mine if node == self._node else np.empty_like(mine) for node in range(nodes)]
        yield from self.swap(terms, [sent[part] for part in parts], tag)
        total = widened(terms[0])
        for term in terms[1:]:
            total += widened(term)
        mine[:] = narrowed(total) if narrow else total
        if not whole:
            yield from self.swap([sent[part] for part in parts], [mine] * nodes, tag + 1)
        if narrow:
            sums[:] = widened(sent)
        rows[1:] = sums

    def swap(self, received: Sequence[Array], sent: Sequence[Array], tag: int) -> Waits:
        """Exchanges arrays with the other nodes, by node."""
        requests = list[Any]()
        for send, arrays in ((self._comm.Irecv, received), (self._comm.Isend, sent)):
            for other in self._others:
                data = arrays[other].view(np.uint8)
                parts = (data[a : a + MESSAGE] for a in range(0, data.size, MESSAGE))
                requests += [send(part, self._peers[other], tag) for part in parts]
        while not self._are_over(requests):
            yield requests


class ByNodes:
    """A meeting of all ranks: on each node `here`, then of the nodes' first ranks by messages, then `here` again.

    `leaders` are these first ranks, None on others; `here` is None where all ranks are first ones.
    """

    def __init__(self, leaders: Across | None, here: ByMessages | ByBoard | None) -> None:
        self._leaders, self._here, self._alike = leaders, here, True
        self.waits: Sequence[Any] | None = ()  # the requests that it waits for; None once all are here

    def come(self, token: int) -> None:
        self._steps = self._meet(token)

    def all_here(self) -> bool:
        self.waits = next(self._steps, None)
        return self.waits is None

    def alike(self) -> bool:
        """Whether all came for the same call, once all are here."""
        return self._alike

    def _meet(self, token: int) -> Waits:
        self._alike = True
        yield from self._meet_here(token)
        found = True
        if self._leaders is not None:
            mine = np.array([token if self._alike else -1])
            tokens = [mine.copy() for _ in range(self._leaders.nodes)]
            yield from self._leaders.swap(tokens, [mine] * len(tokens), MEETING)
            found = self._alike = {token} == {each.item() for each in tokens}
        yield from self._meet_here(int(found))  # the others learn what the first rank has found
        self._alike = found and self._alike

    def _meet_here(self, token: int) -> Waits:
        if self._here is not None:
            self._here.come(token)
            while not self._here.all_here():
                yield ()
            self._alike = self._here.alike()
