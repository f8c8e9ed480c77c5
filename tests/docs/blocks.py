"""The blocks of code of README and docs/, with their language, and the reason why one is not run, or is run alone."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARK = r"<!-- (?:not run: (?P<reason>.+?)|needs: (?P<needs>.+?)) -->"
FENCE = re.compile(rf"(?:^{MARK}\n)?^```(?P<language>\S*)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    reason: str | None
    needs: tuple[str, ...] = ()  # packages; the block is a program by itself

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            str(page.relative_to(ROOT)),
            text[: found.start("text")].count("\n") + 1,
            found["language"],
            found["text"],
            found["reason"],
            tuple(re.findall(r"\w+", found["needs"] or "")),
        )
        for found in FENCE.finditer(text)
    ]


def commands(text: str) -> list[str]:
    """The command lines of a shell's block: comments off, continued lines joined, `a && b` apart."""
    joined = text.replace("\\\n", " ")
    bare = [re.sub(r"(^|\s)#.*", "", line) for line in joined.splitlines()]
    return [part.strip() for line in bare for part in line.split(" && ") if part.strip()]
