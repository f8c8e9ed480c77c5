"""Pickles: data read, and tensors written for torch.load, without PyTorch; nothing that a pickle names is run.

Those that are read have lists, dicts, texts, numbers and NumPy arrays; one that names anything else is refused. A file
for torch.load (also with weights_only=True) is a ZIP of a pickle, which names the tensors, and of each tensor's bytes
(torch/serialization.py). The pickle needs few instructions, which are written here one by one.
"""

import io
import pickle
import struct
import sys
import warnings
import zipfile
from typing import BinaryIO

import numpy as np

from mpibow.errors import ConfigError, RecordError
from mpibow.graph import Array, ArraysByName

ALLOWED = {  # the names that arrays are pickled with; `encode` makes bytes in Python 3's protocol 2
    *((f"{package}.multiarray", "_reconstruct") for package in ("numpy.core", "numpy._core")),
    *((f"{package}.numeric", "_frombuffer") for package in ("numpy.core", "numpy._core")),  # protocol 5
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _DataUnpickler(pickle._Unpickler):  # C's allocates a table as long as the largest number that a file names
    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in ALLOWED:
            raise RecordError(f"asks for {module}.{name}, which data have no need of; it may be malicious")
        return super().find_class(module, name)


def read_pickle(data: bytes) -> object:
    """The pickle's contents; Python 2's strings, and the keys of the outermost dict, as text, byte by byte.

    Raises RecordError where it is none, not whole, or contains anything but data.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # about escapes in a damaged text, and types of older NumPys
            value = _DataUnpickler(io.BytesIO(data), encoding="latin-1").load()
    except RecordError:
        raise
    except Exception as error:  # of whatever functions a damaged file calls
        raise RecordError(f"is not a pickle, or is damaged: {str(error) or type(error).__name__}") from error
    if not isinstance(value, dict):
        return value
    return {key.decode("latin-1") if isinstance(key, bytes) else key: each for key, each in value.items()}


STORAGES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}
WRITTEN = (1980, 1, 1, 0, 0, 0)  # the same file whenever it is written
ORDERED_DICT = b"ccollections\nOrderedDict\n)R"


def write_state_dict(file: BinaryIO, arrays: ArraysByName) -> None:
    """Writes an OrderedDict of tensors on the CPU. Raises ConfigError for a type that STORAGES lacks."""
    found = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in found.items():
        if str(array.dtype) not in STORAGES:
            raise ConfigError(f"{name}: must be of {', '.join(STORAGES)}, got {array.dtype}")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        parts = {"data.pkl": pickled(found), "byteorder": sys.byteorder.encode()}
        parts |= {f"data/{number}": array.tobytes() for number, array in enumerate(found.values())}
        for name, data in (*parts.items(), ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo(f"archive/{name}", WRITTEN), data)


def pickled(arrays: ArraysByName) -> bytes:
    """An OrderedDict of tensors, whose bytes lie elsewhere under their numbers: protocol 2."""
    items = b"".join(_text(name) + _tensor(number, array) for number, (name, array) in enumerate(arrays.items()))
    return b"\x80\x02" + ORDERED_DICT + b"(" + items + b"u."


def _tensor(number: int, array: Array) -> bytes:
    """torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks)."""
    storage = f"ctorch\n{STORAGES[str(array.dtype)]}\n".encode()
    place = b"(" + _text("storage") + storage + _text(str(number)) + _text("cpu") + _integer(array.size) + b"tQ"
    strides = [stride // array.itemsize for stride in array.strides]
    shape = b"".join(b"(" + b"".join(map(_integer, each)) + b"t" for each in (array.shape, strides))
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + place + _integer(0) + shape + b"\x89" + ORDERED_DICT + b"tR"


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _integer(number: int) -> bytes:
    """An integer as BININT, or as LONG1 beyond 31 bits."""
    if number < 1 << 31:
        return b"J" + struct.pack("<i", number)
    return b"\x8a\x08" + struct.pack("<q", number)
