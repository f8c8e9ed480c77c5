"""A formula that another one calls: its lines, with names of their own, in the place of the call."""

from collections.abc import Mapping, Sequence

from .tree import Apply, Expression, Formula, Name


def inlined(
    called: Formula, given: Mapping[str, Expression], prefix: str
) -> tuple[Sequence[tuple[str, Expression]], tuple[Expression, ...]]:
    """The assignments to make in front of a call, and its results, both in the caller's names.

    `given` are its arguments by name. Its own names begin with `prefix`, which no other call of the caller has.
    """
    assignments = list[tuple[str, Expression]]()
    names = dict[str, Expression]()
    assigned = {name for name, _ in called.assignments}

    def assign(name: str, tree: Expression) -> None:
        own = f"{prefix}{name.removeprefix('_')}"  # one that begins with _ is of a call in the one that is called
        assignments.append((own, tree))
        names[name] = Name(own)

    for name, tree in given.items():
        if isinstance(tree, Apply) or name in assigned:
            assign(name, tree)
        else:
            names[name] = tree
    for name, tree in called.assignments:
        assign(name, renamed(tree, names))
    return assignments, tuple(renamed(tree, names) for tree in called.results)


def renamed(tree: Expression, names: Mapping[str, Expression]) -> Expression:
    """The tree with another tree in the place of each name."""
    match tree:
        case Name(name):
            return names[name]
        case Apply(function, arguments):
            return Apply(function, tuple(renamed(each, names) for each in arguments))
    return tree
