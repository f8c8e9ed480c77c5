"""A net of the user's own: `model.name: mynet.py:net` names a function in a Python file, which training alone runs."""

import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

from mpibow.config import Config
from mpibow.config.schema import Model
from mpibow.config.strict import Function, check_named, hints_of
from mpibow.errors import ConfigError, FormulaError, MpibowError, ShapeError
from mpibow.graph import Tensor
from mpibow.models import LossNet, Net
from mpibow.system import JsonObject, read_file, refusal
from mpibow.system.command import suggested

FORM = re.compile(r"(?P<path>.+\.py)(:(?P<function>.*))?", re.DOTALL)
CLASSES = "classes"  # the parameter that gets the data's number of classes


def is_net_file(model: Model) -> bool:
    """Whether `model.name` is a function in a file of the user's."""
    return FORM.fullmatch(model.name) is not None


def function_name(model: Model) -> str:
    """The function's name, without its file's."""
    return model.name.rpartition(":")[2]


def with_checksum(config: Config) -> Config:
    """The config with the checksum of the user's file in model.sha256, so that runs of different files differ in it.

    Raises ConfigError where the config already has another checksum.
    """
    model = config.model
    if model is None or not is_net_file(model):
        return config
    path, _, content = _read(model)
    found = hashlib.sha256(content).hexdigest()
    if model.sha256 not in (None, found):
        raise ConfigError(
            f"model.sha256: {path} has changed: it is {found[:12]}..., the settings have {model.sha256[:12]}...; type "
            "model.sha256=null to train with the file as it is now"
        )
    return replace(config, model=replace(model, sha256=found))


def kept_files(config: Config) -> Mapping[str, bytes]:
    """The user's file by its name, for the run directory."""
    if config.model is None or not is_net_file(config.model):
        return {}
    path, _, content = _read(config.model)
    return {path.name: content}


def gives_losses(model: Model) -> bool:
    """Whether the function takes several arrays by name and returns losses; else it takes an image for logits."""
    return len(_needed(_function(model))) > 1


def net_of_file(model: Model, classes: int) -> Net:
    """The function as a net from an image to logits. Raises ConfigError."""
    function = _function(model)
    given = {CLASSES: classes} if CLASSES in inspect.signature(function).parameters else {}
    if not (parameters := _parameters(function)):
        raise ConfigError(f"model.name: {model.name}: must take an image, as def net(image, classes): ...")
    return _placed(model, function, {**given, **_options(model, function, {parameters[0].name})})


def losses_of_file(model: Model, arrays: Collection[str] | None = None) -> LossNet:
    """The function as a net from arrays by name to losses. Raises ConfigError, also where `arrays` lack one."""
    function = _function(model)
    needed = _needed(function)
    if model.classes is not None:
        raise ConfigError(f"model.classes: {model.name} gives losses, got {model.classes}; leave it out")
    if missing := [name for name in needed if arrays is not None and name not in arrays]:
        raise ConfigError(f"model.name: {model.name} takes {missing[0]}, the data have {', '.join(arrays or ())}")
    net = _placed(model, function, _options(model, function, set(needed)))
    return lambda **tensors: net(**{name: tensors[name] for name in needed})


def _read(model: Model) -> tuple[Path, str, bytes]:
    """The path, the function's name and the file's bytes."""
    found = FORM.fullmatch(model.name)
    assert found is not None
    path = Path(found["path"])
    if not found["function"]:
        raise ConfigError(f"model.name: must name a function of {path} too, as {path}:net, got '{model.name}'")
    with refusal(ConfigError, f"model.name: {path}", "read"):
        return path, found["function"], read_file(path)


def _function(model: Model) -> Function:
    path, name, content = _read(model)
    module = _module(path, path.resolve(), content)
    function = getattr(module, name, None)
    if inspect.isfunction(function):
        return function
    own = [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and key[0] != "_" and value.__module__ == module.__name__
    ]
    remedy = suggested(name, own, f"it has {', '.join(own) or 'none'}")
    raise ConfigError(f"model.name: {path} has no function '{name}'; {remedy}")


@cache
def _module(path: Path, whole: Path, content: bytes) -> ModuleType:
    """The file as a module that finds its neighbours; run once, as it is now. Raises ConfigError."""
    module = ModuleType(f"net_file_{path.stem}")
    module.__file__ = str(whole)
    sys.modules[module.__name__] = module  # dataclasses look there
    if str(whole.parent) not in sys.path:
        sys.path.append(str(whole.parent))
    try:
        exec(compile(content, str(whole), "exec"), vars(module))
    except SyntaxError as error:
        at = path if error.filename == str(whole) else error.filename
        raise ConfigError(f"model.name: {at}:{error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"model.name: {_place(path, error)}: {type(error).__name__}: {error}") from error
    return module


def _place(path: Path, error: BaseException) -> str:
    """FILE:LINE of the user's file where `error` came from, the innermost."""
    whole = str(path.resolve())
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == whole]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _parameters(function: Function) -> list[inspect.Parameter]:
    """The parameters that may be data: positional ones but for `classes`."""
    every = inspect.signature(function).parameters.values()
    return [p for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != CLASSES]


def _needed(function: Function) -> list[str]:
    """The names of those without a default."""
    return [p.name for p in _parameters(function) if p.default is p.empty]


def _options(model: Model, function: Function, taken: set[str]) -> JsonObject:
    """`model`'s further keys as keyword arguments, by the function's annotations where it has any."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(model.options)
    try:
        hints = hints_of(function)
    except Exception:  # annotations are the user's, and may name anything
        hints = {}
    names = [
        p.name
        for p in parameters
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in {*taken, CLASSES}
    ]
    return check_named("model", function, names, model.options, hints)


def _placed(model: Model, function: Function, options: Mapping[str, object]) -> Callable[..., Tensor]:
    """The function, whose errors begin with their place in the user's file."""
    path = _read(model)[0]

    def net(*tensors: Tensor, **named: Tensor) -> Tensor:
        try:
            found = function(*tensors, **named, **options)
        except (ConfigError, FormulaError, ShapeError) as error:
            raise type(error)(f"{_place(path, error)}: {error}") from error
        except MpibowError:
            raise
        except Exception as error:
            raise ConfigError(f"{_place(path, error)}: {type(error).__name__}: {error}") from error
        if not isinstance(found, Tensor):
            raise ShapeError(f"{model.name}: must return a tensor, got {type(found).__name__}")
        return found

    return net
