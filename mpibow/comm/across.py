"""Sums across nodes by messages that are polled, added up in the order of the nodes, however an array is cut."""

import ctypes
from collections.abc import Iterator, Sequence
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np

from mpibow.system.process import address

from .communicator import Array
from .shared import BLOCK, ByBoard, ByMessages

PIECE = 2**18  # elements that are sent together
MESSAGE = 61440  # bytes; with longer ones Open MPI over TCP is half as fast where both sides send
ONE_ROUND = 2**11  # elements up to which every node adds up all of them: more bytes, half the rounds
TAGS = 2**13  # of pieces, two each; MPI grants 2^15
MEETING = 2 * TAGS  # the tag of meetings
TOKEN = 8  # bytes of a meeting's messages, each below MESSAGE: the token
CARRIED = 2**16  # and what all nodes' carry
NOTHING: Array = np.zeros((1, 0), np.float32)  # to carry
Row = tuple[int, int, int, int, int]  # a call of a C function (function, a, b, c, d)
CALL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 4)


class Messages:
    """Messages to and from other nodes, sent again at each start: persistent requests of MPI, which may replace them.

    `starts` and `test` are calls of MPI; `over` is set where a test has found that all are over.
    """

    def __init__(self, mpi: ModuleType, requests: Sequence[Any]):
        size = mpi._sizeof(mpi.Request())
        many = len(requests)
        handles = np.array([mpi._handleof(each) % 2 ** (8 * size) for each in requests], f"u{size}")
        statuses = np.zeros(many * mpi._sizeof(mpi.Status()), np.uint8)
        self.over = np.zeros(1, np.int32)
        self._kept = (requests, handles, statuses)
        self._error = mpi.Exception
        start, test = (address(each, mpi.__file__) for each in ("MPI_Start", "MPI_Testall"))
        first = handles.ctypes.data
        # In this order: MPI_Startall promises none, and messages to a rank have one tag.
        self.starts: list[Row] = [(start, first + i * size, 0, 0, 0) for i in range(many)]
        self.test: Row = test, many, first, self.over.ctypes.data, statuses.ctypes.data

    def call(self, *rows: Row) -> None:
        for row in rows:
            if code := CALL(row[0])(*row[1:]):
                raise self._error(code)


class Across:
    """The ranks, one of every node, that hold the same share of an array."""

    def __init__(self, mpi: ModuleType, comm: Any, peers: Sequence[int], node: int, piece: int = PIECE):
        """`peers` are their ranks in `comm` by node, `node` is this rank's."""
        self._mpi = mpi
        self._comm = comm
        self._peers = peers
        self.node = node
        self.nodes = len(peers)
        self._piece = BLOCK if self.nodes == 1 else piece
        self._others = [other for other in range(len(peers)) if other != node]
        self._rooms = dict[tuple[int, int], Array]()

    def pieces(self, rows: Array, narrow: bool, numbers: Iterator[int]) -> Iterator[Any]:
        """The pieces of a sum of all nodes' rows, which goes into each of this node's, (ranks, n), as commands. All
        nodes have the same `numbers`. `narrow`: they send each other float32 as bfloat16, and add it up in float32."""
        for start in range(0, rows.shape[1], self._piece):
            yield self._sum(rows[:, start : start + self._piece], next(numbers), narrow and self.nodes > 1)

    def _sum(self, rows: Array, number: int, narrow: bool) -> Any:
        """One piece. Each node adds up a part of it, and sends that to the others.

        The order is fixed: the sum of the first node, plus that of the second, and so on. Pieces that are never under
        way together share their scratch, those of other arrays too.
        """
        from mpibow.kernels.compiled import sums as kernels
        from mpibow.kernels.compiled.command import Command, together
        from mpibow.kernels.compiled.recorder import command

        commands = []

        def do(*call: Any) -> None:
            commands.append(command(*call))

        def swap(received: Sequence[Array], sent: Sequence[Array], tag: int) -> None:
            messages = self.messages(received, sent, tag)
            commands.append(Command([*messages.starts, messages.test], messages))

        def room(size: int, dtype: Any) -> Array:
            key = number % kernels.UNDER_WAY, next(rooms)
            made: Array = self._rooms.setdefault(key, np.empty(8 * self._piece, np.uint8)).view(dtype)
            return made[:size]

        nodes = self.nodes
        size = rows.shape[1]
        tag = 2 * (number % TAGS)
        rooms = count()
        total = rows[0]
        for row in rows[1:]:
            do(kernels.add, total, row)
        sent = room(size, np.uint16) if narrow else total
        if narrow:
            do(kernels.narrow, sent, total)
        whole = nodes <= 2 or size <= ONE_ROUND  # of two nodes both send as many bytes either way
        parts = [slice(size) if whole else slice(size * i // nodes, size * (i + 1) // nodes) for i in range(nodes)]
        mine = sent[parts[self.node]]
        terms = [mine if node == self.node else room(mine.size, mine.dtype) for node in range(nodes)]
        if nodes > 1:
            swap(terms, [sent[part] for part in parts], tag)
        first = terms[0]
        if narrow:
            first = room(mine.size, np.float32)
            wide = room(mine.size, np.float32)
            do(kernels.widen, first, terms[0])
        for term in terms[1:]:
            if narrow:
                do(kernels.widen, wide, term)
            do(kernels.add, first, wide if narrow else term)
        if narrow or self.node:
            do(kernels.narrow if narrow else kernels.put, mine, first)
        if not whole:
            swap([sent[part] for part in parts], [mine] * nodes, tag + 1)
        if narrow:
            do(kernels.widen, total, sent)
        for row in rows[1:]:
            do(kernels.put, row, total)
        return together(commands)

    def messages(self, received: Sequence[Array], sent: Sequence[Array], tag: int) -> Messages:
        """Messages that exchange arrays with the other nodes, by node."""
        requests = []
        for make, arrays in ((self._comm.Recv_init, received), (self._comm.Send_init, sent)):
            for other in self._others:
                data = arrays[other].view(np.uint8)
                parts = (data[a : a + MESSAGE] for a in range(0, data.size, MESSAGE))
                requests += [make(part, self._peers[other], tag) for part in parts]
        return Messages(self._mpi, requests)


class ByNodes:
    """A meeting of all ranks: on each node `here`, then of the nodes' first ranks by messages, then `here` again.

    `leaders` are these first ranks, None on others; `here` is None where all ranks are first ones. The messages carry a
    short array that is to be summed: a second round of them would take as long again.
    """

    def __init__(self, leaders: Across | None, here: ByMessages | ByBoard | None, nodes: int):
        self._leaders = leaders
        self._here = here
        self._rooms = np.zeros((nodes, TOKEN + CARRIED // nodes // 8 * 8), np.uint8)  # by node, as it is sent
        self._tokens = self._rooms[:, :TOKEN].view(np.int64)
        self._kept = dict[int, Messages]()
        self.test: Row | None = None  # of the messages that it waits for

    def carries(self, rows: Array) -> bool:
        """Whether `come` takes these, (ranks of a node, n)."""
        return bool(TOKEN + rows[0].nbytes <= self._rooms.shape[1])

    def come(self, token: int, rows: Array = NOTHING) -> None:
        """Once all are here, and `alike`, each of `rows` is all ranks' sum, in the order of `Across`."""
        self._steps = self._meet(token, rows)

    def all_here(self) -> bool:
        return next(self._steps, True)

    def alike(self) -> bool:
        """Whether all came for the same call, once all are here."""
        return self._alike

    def _meet(self, token: int, rows: Array) -> Iterator[bool]:
        self._alike = True
        yield from self._meet_here(token)
        found = True
        leaders = self._leaders
        if leaders is not None:
            self._tokens[:] = token if self._alike else -1
            size = TOKEN + rows[0].nbytes
            terms = self._rooms[:, TOKEN:size].view(rows.dtype)
            terms[leaders.node] = rows[0]
            for row in rows[1:]:
                terms[leaders.node] += row
            grain = 1 << (size.bit_length() - 3)  # few sizes: each keeps messages
            size = min(-(-size // grain) * grain, self._rooms.shape[1])
            if size not in self._kept:
                sent = [self._rooms[leaders.node, :size]] * leaders.nodes
                self._kept[size] = leaders.messages([*self._rooms], sent, MEETING)
            messages = self._kept[size]
            messages.call(*messages.starts)
            self.test = messages.test
            while not messages.over[0]:
                yield False
                messages.call(self.test)
            messages.over[0] = 0
            self.test = None
            found = self._alike = bool((self._tokens == token).all())
            if found:
                for term in terms[1:]:
                    terms[0] += term
                rows[:] = terms[0]
        yield from self._meet_here(int(found))  # the others learn what the first rank has found
        self._alike = found and self._alike

    def _meet_here(self, token: int) -> Iterator[bool]:
        if self._here is not None:
            self._here.come(token)
            while not self._here.all_here():
                yield False
            self._alike = self._here.alike()
