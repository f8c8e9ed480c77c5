"""Pickles of lists, dicts, texts, numbers and NumPy arrays; one that names anything else is refused."""

from __future__ import annotations

import io
import pickle
import warnings
from typing import Any

from mpibow.errors import RecordError

ALLOWED = {  # the names that arrays are pickled with; `encode` makes bytes in Python 3's protocol 2
    *((f"{package}.multiarray", "_reconstruct") for package in ("numpy.core", "numpy._core")),
    *((f"{package}.numeric", "_frombuffer") for package in ("numpy.core", "numpy._core")),  # protocol 5
    *(("numpy", name) for name in ("ndarray", "dtype")),
    ("_codecs", "encode"),
}


class _Reader(pickle._Unpickler):  # C's allocates a table as long as the largest number that a file names
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise RecordError(f"asks for {module}.{name}, which data have no need of; it may be malicious")
        return super().find_class(module, name)


def read_pickle(data: bytes) -> object:
    """The pickle's contents; Python 2's strings, and the keys of the outermost dict, as text, byte by byte.

    Raises RecordError where it is none, not whole, or contains anything but data.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # about escapes in a damaged text, and types of older NumPys
            value = _Reader(io.BytesIO(data), encoding="latin-1").load()
    except RecordError:
        raise
    except Exception as error:  # of whatever functions a damaged file calls
        raise RecordError(f"is not a pickle, or is damaged: {str(error) or type(error).__name__}") from error
    if not isinstance(value, dict):
        return value
    return {key.decode("latin-1") if isinstance(key, bytes) else key: each for key, each in value.items()}
