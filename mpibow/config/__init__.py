"""Turns one YAML file and its overrides into frozen dataclasses."""

from .schema import Config, describe, limits_of, load, load_mapping
from .strict import build, plain
from .words import show
