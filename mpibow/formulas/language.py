"""Reads a formula out of a Python function: its permitted statements and expressions, and replacements for the others.

    from mpibow.formulas.functions import where

    def heavy_ball(w, g, momenta, *, rate, momentum, decay):
        g = where(decay != 0, g + decay * w, g)
        momenta = momentum * momenta + g
        return -rate * momenta, momenta

Positional parameters are elements of arrays, keyword-only ones scalars of the iteration. A number that the function's
module names, as TINY, is a literal. Functions of mpibow.formulas.functions are called by name, or as attributes of that
module. A function that the module names and that is written like this one may be called: its lines take the place of
the call.
"""

import ast
import builtins
import inspect
import math
import textwrap
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import NoReturn

from mpibow.errors import FormulaError
from mpibow.formulas import functions

from .inlining import inlined
from .tree import Apply, Expression, Formula, Name, Number, parts_of

OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.And: "and",
    ast.Or: "or",
    ast.Not: "not",
}
# Replacements for constructs that a formula may not have.
REMEDIES: dict[type[ast.AST], str] = {
    ast.IfExp: "write where(condition, a, b)",
    ast.If: "write where(condition, a, b) in an assignment",
    ast.For: "a formula is of one element, with no loop",
    ast.While: "a formula is of one element, with no loop",
    ast.AugAssign: "write x = x + ...",
    ast.AnnAssign: "write x = ...",
    ast.Subscript: "a formula is of one element, and its names are elements already",
    ast.Compare: "write comparisons in the condition of where(condition, a, b)",
    ast.BoolOp: "write and, or, not in the condition of where(condition, a, b)",
    ast.Not: "write and, or, not in the condition of where(condition, a, b)",
    ast.Pow: "write x * x, or sqrt(x)",
    ast.Tuple: "a tuple is what `return` gives",
}
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)


@cache
def formula(function: Callable[..., object]) -> Formula:
    """The formula that a function writes. Raises FormulaError with the file, the line and what to write instead."""
    return _Reader(function).read()


class _Reader:
    def __init__(self, function: Callable[..., object], callers: tuple[Callable[..., object], ...] = ()):
        self._globals = getattr(function, "__globals__", {})
        self._chain = (*callers, function)
        self._title = getattr(function, "__qualname__", "?").rpartition("<locals>.")[2].replace(".", "_")
        self._file = "<unknown>"
        self._first = 1
        try:
            lines, first = inspect.getsourcelines(function)
            self._file = inspect.getsourcefile(function) or "<unknown>"
            self._first = max(first, 1)
            (self._node,) = ast.parse(textwrap.dedent("".join(lines))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            raise FormulaError(
                f"formula {getattr(function, '__name__', function)!r}: its source cannot be read; "
                "write it as a `def` in a file"
            ) from None
        self._known = set[str]()
        self._assignments = list[tuple[str, Expression]]()
        self._calls = 0  # of other formulas

    def read(self) -> Formula:
        node = self._node
        if not isinstance(node, ast.FunctionDef):
            self._refuse(node, "is not a function", "write it as a `def`")
        rules = node.args
        if rules.vararg or rules.kwarg or rules.defaults or any(rules.kw_defaults):
            self._refuse(node, "has a parameter with a default or a *", "name every array and every scalar")
        positional = (*rules.posonlyargs, *rules.args)
        arrays = tuple(each.arg for each in positional)
        scalars = tuple(each.arg for each in rules.kwonlyargs)
        if not arrays:
            self._refuse(node, "has no array", "write arrays in front of the `*`, scalars behind it")
        for each in (*positional, *rules.kwonlyargs):
            self._own(each, each.arg)
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if not body or not isinstance(body[-1], ast.Return) or body[-1].value is None:
            self._refuse(body[-1] if body else node, "does not end with its results", "end with `return u, state, ...`")
        for statement in body[:-1]:
            self._assign(statement)
        value = body[-1].value
        if function := self._formula_of(value):
            results = self._results(value, function)
        else:
            results = tuple(map(self._number, value.elts if isinstance(value, ast.Tuple) else [value]))
        if not results:
            self._refuse(body[-1], "gives nothing", "end with `return u, state, ...`")
        return Formula(self._title, arrays, scalars, tuple(self._assignments), results)

    def _assign(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Return):
            self._refuse(statement, "is not the last line", "write where(condition, a, b) in an assignment")
        if not isinstance(statement, ast.Assign):
            self._refuse(statement, "is not an assignment")
        first = statement.targets[0] if len(statement.targets) == 1 else None
        trees: tuple[Expression, ...]
        if isinstance(first, ast.Name):
            targets = [first]
            trees = (self._number(statement.value),)
        elif isinstance(first, ast.Tuple) and (function := self._formula_of(statement.value)):
            targets = [
                each if isinstance(each, ast.Name) else self._refuse(each, "is not a name") for each in first.elts
            ]
            trees = self._results(statement.value, function)
            if len(trees) != len(targets):
                self._refuse(statement, f"has {len(targets)} name(s) for {len(trees)} result(s)")
        else:
            self._refuse(statement, "does not assign to one name", "write one assignment a line")
        for target in targets:
            self._own(target, target.id)
        names = [target.id for target in targets]
        set_before = ((tree, Name(name)) for i, tree in enumerate(trees) for name in names[:i])
        if any(name in parts_of(tree) for tree, name in set_before):  # a result reads what one before it sets
            aside = [f"_{self._calls}_{i}" for i in range(len(trees))]
            self._assignments += zip(aside, trees, strict=True)
            trees = tuple(map(Name, aside))
        self._assignments += zip(names, trees, strict=True)

    def _own(self, node: ast.AST, name: str) -> None:
        """Names that begin with _ are the generated code's; a function's own name would hide it."""
        if name.startswith("_") or name in functions.COUNTS or not name.isascii():
            self._refuse(node, "cannot be a name here", "choose one of letters and digits that no function has")
        self._known.add(name)

    def _number(self, node: ast.expr) -> Expression:
        """An expression whose value is a number."""
        match node:
            case ast.Constant(value=value):
                return self._literal(node, value)
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._number(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Apply("negative", (self._number(operand),))
            case ast.UnaryOp(op=op):
                self._refuse(node, "is not arithmetic", REMEDIES.get(type(op), ""))
            case ast.BinOp(left=left, op=op, right=right):
                if not isinstance(op, ARITHMETIC):
                    self._refuse(node, "is not one of + - * /", REMEDIES.get(type(op), ""))
                return Apply(OPERATORS[type(op)], (self._number(left), self._number(right)))
            case ast.Call():
                return self._call(node)
        self._refuse(node, "is not a number")

    def _condition(self, node: ast.expr) -> Expression:
        match node:
            case ast.BoolOp(op=op, values=[first, *others]):
                tree = self._condition(first)
                for other in others:
                    tree = Apply(OPERATORS[type(op)], (tree, self._condition(other)))
                return tree
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Apply("not", (self._condition(operand),))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPERATORS:
                return Apply(OPERATORS[type(op)], (self._number(left), self._number(right)))
            case ast.Compare():
                self._refuse(node, "is not one comparison", "write a < b and b < c")
        self._refuse(node, "is not a condition", "write a comparison, as x != 0")

    def _formula_of(self, node: ast.expr) -> FunctionType | None:
        """The module's function that is called, where it is none of formulas' own."""
        name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        found = None if name in functions.COUNTS or name in self._known else self._globals.get(name)
        return found if isinstance(found, FunctionType) else None

    def _results(self, node: ast.expr, function: FunctionType) -> tuple[Expression, ...]:
        """The results of a call of another formula; its assignments are made in front."""
        assert isinstance(node, ast.Call)
        if function in self._chain:
            self._refuse(node, "calls itself", "a formula is of one element, with no loop")
        called = _Reader(function, self._chain).read()
        keywords = {str(each.arg): each.value for each in node.keywords}
        try:
            bound = inspect.signature(function).bind(*node.args, **keywords).arguments
        except TypeError:
            takes = ", ".join([*called.arrays, *(f"{name}=..." for name in called.scalars)])
            self._refuse(node, "has other arguments than its function", f"write {ast.unparse(node.func)}({takes})")
        given = {name: self._number(value) for name, value in bound.items()}
        self._calls += 1
        assignments, results = inlined(called, given, f"_{self._calls}_")
        self._assignments += assignments
        return results

    def _call(self, node: ast.Call) -> Expression:
        if function := self._formula_of(node):
            results = self._results(node, function)
            called = ast.unparse(node.func)
            if len(results) != 1:
                self._refuse(node, f"gives {len(results)} results", f"write a, b, ... = {called}(...) in front")
            return results[0]
        name = ""
        given = None
        match node.func:
            case ast.Name(id=name):
                given = self._globals.get(name)
            case ast.Attribute(value=ast.Name(id=module), attr=attribute) if self._globals.get(module) is functions:
                name = attribute
        allowed = ", ".join(functions.COUNTS)
        if name not in functions.COUNTS or node.keywords:
            remedy = f"call one of {allowed}, imported from {MODULE}, or a function that is written as a formula"
            self._refuse(node, "is not a function of formulas", remedy)
        own = getattr(functions, name), getattr(builtins, name, None)
        if given is not None and not any(given is each for each in own):
            self._refuse(node, f"is another {name}", f"import it from {MODULE}")
        count = functions.COUNTS[name]
        if len(node.args) != count:
            self._refuse(node, f"has {len(node.args)} argument(s), {name} takes {count}")
        first = self._condition(node.args[0]) if name == "where" else self._number(node.args[0])
        return Apply(name, (first, *map(self._number, node.args[1:])))

    def _name(self, node: ast.expr, name: str) -> Expression:
        if name in self._known:
            return Name(name)
        if name not in self._globals:
            self._refuse(node, "is not known here", "make it a parameter: an array before the `*`, a scalar behind it")
        return self._literal(node, self._globals[name])

    def _literal(self, node: ast.expr, value: object) -> Number:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self._refuse(node, "is not a finite number")
        return Number(float(value))

    def _refuse(self, node: ast.AST, fault: str, remedy: str = "") -> NoReturn:
        remedy = remedy or REMEDIES.get(type(node), "")
        line = self._first + getattr(node, "lineno", 1) - 1
        text = " ".join(ast.unparse(node).split("\n")[0].split())
        end = f"; {remedy}" if remedy else ""
        raise FormulaError(f"formula {self._title!r}, {self._file}:{line}: `{text}` {fault}{end}")


MODULE = "mpibow.formulas.functions"
