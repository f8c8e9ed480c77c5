"""Source files, unpacked while they are read: gzip and xz, by the suffixes of their names."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from mpibow.errors import RecordError
from mpibow.system.files import open_file, reason

Source = gzip.GzipFile | lzma.LZMAFile | BufferedReader
ENDS = {".gz": gzip, ".tgz": gzip, ".xz": lzma, ".txz": lzma}


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """The file's bytes, unpacked. Raises RecordError where the file is damaged, also for errors inside the block."""
    form = ENDS.get(path.suffix.lower())
    try:
        with open_file(path) as raw, form.open(raw) if form else raw as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        kind = "gzip" if form is gzip else "xz"
        raise RecordError(f"{path}: is not a complete {kind} file: {str(error).lower()}; get the file again") from error
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {reason(error)}") from error
