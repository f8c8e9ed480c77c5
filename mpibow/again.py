"""For batch scripts: whether a run may be queued again after an exit code.

python -m mpibow.again CODE CONFIG.yaml [key=value ...]      exits with 0 if so, else with 1
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from .config import load
from .errors import MpibowError
from .run.directory import MOST, may_start_again
from .system.streams import as_command


def main(argv: Sequence[str] | None = None) -> int:
    code, path, *overrides = sys.argv[1:] if argv is None else argv
    try:
        config = load(Path(path), overrides)
        again = may_start_again(int(code), Path(config.out) / config.name)
    except MpibowError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not again:
        print(f"exit code {code}: not queued again; 5, 8 and 137 are, {MOST} times without a new checkpoint")
    return 0 if again else 1


if __name__ == "__main__":
    as_command(main)
