"""A side that stays: one process that is asked again and again, a line of JSON each way, within a time limit."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

from benchmarks.sides import ROOT, THREADS


class Refused(Exception):
    """The side could not answer this question, or any more."""


class Asked:
    """`command` is started with the first question, and again after it has ended."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command, self._child = list(command), None
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  its last line says why it ended

    def __call__(self, limit: float, **question: object) -> Any:
        """Its answer. Raises Refused where it has none, has ended, or says nothing for `limit` seconds."""
        child = self._child = self._child if self._child and self._child.poll() is None else self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        late = threading.Timer(limit, child.kill)
        late.start()
        try:
            child.stdin.write(json.dumps(question) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late.cancel()
        if not line:
            code = child.wait()
            raise Refused(f"{shlex.join(self._command[:2])} ended with code {code}: {self._last_words()}")
        found = json.loads(line)
        if isinstance(found, dict) and "error" in found:
            raise Refused(found["error"])
        return found

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def _start(self) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if name not in THREADS}
        return subprocess.Popen(
            self._command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._said, text=True,
        )  # fmt: skip

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().strip().splitlines()
        sys.stderr.write("\n".join(lines[-5:]) + "\n" * bool(lines))
        return lines[-1] if lines else "no word"
