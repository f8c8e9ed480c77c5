"""The optimiser of the page's formula."""

from examples.own_step import Bounded  # noqa: F401
from mpibow.formulas.functions import abs  # noqa: F401
