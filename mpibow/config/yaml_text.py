"""YAML text to nested mappings and back, with YAML 1.2's scalars: 1e-4 is a number, `on` and 2026-01-01 are texts."""

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from mpibow.errors import ConfigError
from mpibow.system import JsonObject, reason
from mpibow.system.command import launch_file, stem

from .words import show

# In this order: the first that matches decides. The characters are those a scalar of that kind may start with.
SCALARS = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("tag:yaml.org,2002:float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("tag:yaml.org,2002:float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
)


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars above; a repeated key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"'{key.value}' is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper; it quotes texts that YAML 1.1 or 1.2 would read as another type."""

    def ignore_aliases(self, data: object) -> bool:
        return True


Loader.yaml_implicit_resolvers = {}
for tag, pattern, starts in SCALARS:
    for cls in (Loader, Dumper):
        cls.add_implicit_resolver(tag, re.compile(rf"(?:{pattern})\Z"), starts)
Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))


def read(path: Path) -> JsonObject:
    """The mapping in a YAML file. Raises ConfigError naming the file."""
    try:
        text = path.read_text(encoding="utf-8")  # a pipe too: `train <(envsubst < template.yaml)`
    except OSError as error:
        found = launch_file(path.name)
        more = f"; mpibow launch --copy {stem(found)} writes launch/{found}" if found and not path.exists() else ""
        raise ConfigError(f"{path}: cannot be read: {reason(error)}{more}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: must be UTF-8 text, got byte {error.object[error.start]:#x} at {error.start}"
        ) from error
    value = parse(text, str(path))
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path}: must be a mapping of settings, got {show(value)}")
    return value


def parse(text: str, origin: str) -> Any:
    """YAML text as mappings, lists and scalars. Raises ConfigError naming `origin`, line and column."""
    try:
        return yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = error.problem or ""
        text = f"{error.context}, {problem}" if problem.startswith("but ") else problem
        raise ConfigError(f"{origin}: {place}{text}") from error
    except (ValueError, LookupError, AttributeError) as error:  # PyYAML's own, as for `!!int x`
        raise ConfigError(f"{origin}: has a value that its !!tag does not allow: {error}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        raise ConfigError(
            f"{origin}: line {line}, column {column}: character {error.character:#x} is not allowed in YAML"
        ) from error


def write(mapping: Mapping[str, object]) -> str:
    """A mapping as YAML text that `parse` reads back as the same."""
    return yaml.dump(mapping, Dumper=Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=120)
