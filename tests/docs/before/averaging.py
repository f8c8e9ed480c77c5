"""The rule that the page speaks of."""

from examples.own_rule import Average  # noqa: F401
