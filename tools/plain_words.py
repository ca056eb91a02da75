# SPDX-License-Identifier: Apache-2.0
"""Counts names of the product that say nothing of what they name; docs/explanation/words.md has what to say instead.

``python -m tools.plain_words`` writes into ``plain_words.csv`` the numbers that have gone down, and no other.
"""

from __future__ import annotations

import ast
import csv
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.tree import files, tree

BOUNDS: Final = Path(__file__).with_suffix(".csv")
BANNED: Final = {
    "look": "look", "looks": "look", "looked": "look", "looking": "look",
    "room": "room", "rooms": "room", "told": "told", "said": "said", "there": "there",
}  # fmt: skip
"""In any name that is given: of a module, class, function, parameter, variable or field."""
CATCH_ALL: Final = {"found", "asked"}
"""As the whole name of a variable or parameter."""
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def counted() -> Counter[tuple[str, str]]:
    """How often each word is in each package."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in files(".py", under="orchestrator/"):
        named = [("module", path.stem), *_names(tree(path))]
        counts.update((package_of(path), word) for kind, name in named for word in _banned(kind, name))
    return counts


def package_of(path: Path) -> str:
    """Of a file of the product; ``.`` is the product itself."""
    return path.parts[1] if len(path.parts) > 2 else "."


def bounds() -> dict[tuple[str, str], int]:
    with BOUNDS.open(newline="", encoding="utf-8") as file:
        return {(row["package"], row["word"]): int(row["at_most"]) for row in csv.DictReader(file)}


def _names(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            yield "class", node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield "function", node.name
        elif isinstance(node, ast.arg):
            yield "variable", node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield "variable", node.id
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield from (("loop", name.id) for name in ast.walk(node.target) if isinstance(name, ast.Name))


def _banned(kind: str, name: str) -> Iterator[str]:
    if kind == "loop" and name == "one":
        yield "one"
    elif kind != "loop":
        yield from (BANNED[word] for word in map(str.lower, _WORD.findall(name)) if word in BANNED)
    if kind == "class" and name == "Place":
        yield "Place"
    if kind == "variable" and name in CATCH_ALL:
        yield name


def main() -> None:
    counts = counted()
    lower = {where: min(most, counts[where]) for where, most in sorted(bounds().items()) if counts[where]}
    with BOUNDS.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("package", "word", "at_most"))
        rows.writerows((*where, most) for where, most in lower.items())


if __name__ == "__main__":
    main()
