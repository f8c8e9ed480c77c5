"""Sizes of memory, in bytes."""

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
ALIGNMENT = 256  # bytes, as cuDNN's fastest kernels require


def in_words(size: int) -> str:
    """3758096384 is 3.5 GiB."""
    for unit, name in UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def aligned(size: int) -> int:
    """`size` rounded up, so that what follows is aligned, too."""
    return -(-size // ALIGNMENT) * ALIGNMENT
