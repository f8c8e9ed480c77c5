"""Reads regular files only: a FIFO or a device may block for ever, or never end. Errors of files in words."""

from __future__ import annotations

import errno
import os
import re
import stat
from io import BufferedReader


def open_file(path: str | os.PathLike[str]) -> BufferedReader:
    """The regular file `path` for reading. Raises OSError, also where it is another kind of file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, reason(error), os.fspath(path)) from None
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        return open(handle, "rb")
    except OSError:
        os.close(handle)
        raise


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of the regular file `path`. Raises OSError."""
    with open_file(path) as file:
        return file.read()


def reason(error: Exception) -> str:
    """Why the system refused a file, in the words of a message."""
    if isinstance(error, UnicodeEncodeError):
        return f"the locale's encoding, {error.encoding}, lacks characters of its name: use a locale of utf-8"
    return str(getattr(error, "strerror", None) or error).lower()


def is_full(error: Exception) -> bool:
    """Whether it is for want of space: a full disk, or a quota. Safetensors gives the number as text."""
    number = re.search(r"os error (\d+)", str(error))
    return (int(number[1]) if number else getattr(error, "errno", None)) in (errno.ENOSPC, errno.EDQUOT)
