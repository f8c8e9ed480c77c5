"""Pickles as Python 2 and its NumPy wrote them: protocol 2, every string a string of bytes."""

import struct

import numpy as np


def pickled(value: object) -> bytes:
    return b"\x80\x02" + _value(value) + b"."


def _value(value: object) -> bytes:
    if isinstance(value, str):
        data = value.encode("latin-1")
        return (b"U" + struct.pack("<B", len(data)) if len(data) < 256 else b"T" + struct.pack("<i", len(data))) + data
    if isinstance(value, int):
        if value in range(256):
            return b"K" + struct.pack("<B", value)
        return b"M" + struct.pack("<H", value) if value in range(65536) else b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_value, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(_value(key) + _value(entry) for key, entry in value.items()) + b"u"
    assert isinstance(value, np.ndarray)
    made = b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85q\x03U\x01bq\x04\x87q\x05Rq\x06"
    shape = b"".join(map(_value, value.shape)) + {1: b"\x85", 2: b"\x86"}[value.ndim]
    dtype = b"cnumpy\ndtype\nq\x07" + _value(value.dtype.str[1:]) + b"K\x00K\x01\x87q\x08Rq\x09"
    dtype += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    return made + b"(K\x01" + shape + dtype + b"\x89" + _value(value.tobytes().decode("latin-1")) + b"tb"
