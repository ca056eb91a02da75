# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.mutants``: takes one protection after the other out of a copy of the tree and runs the tests that
should notice. Writes docs/reference/mutants.md; exit code 1 when something was not noticed. Words choose those in whose
description one of them stands; the page keeps the rows of the others."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.mutations import MUTATIONS, Edit, Mutation

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "mutants.md"
NOTICED = ROOT / "build" / "mutants.json"
"""What a run that was stopped has seen already; the next one goes on there."""
_LIMIT_S = 900
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
"""Logs that pytest shows have lines that begin so as well."""
_ROW = re.compile(r"^\| ([^|]+?) \| `.*\|$", re.MULTILINE)
_HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# What is noticed when it is missing

Written by `make mutants`. One protection at a time is taken out of a copy of the tree, and the tests that should notice
are run until the first fails: it is the one named here. It passes on the untouched tree.

| taken out | where | noticed by |
|---|---|---|
"""


def main(words: list[str]) -> int:
    chosen = [one for one in MUTATIONS if not words or any(word in one.removed for word in words)]
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "tree"
        _copy_to(copy)
        before = _noticed_before()
        rows = [(one, before.get(one.removed) or _noticed_by(copy, one)) for one in chosen]
        untouched = _pytest(copy, tuple({noticed for _, noticed in rows if noticed is not None}))
    if untouched.returncode != 0:
        raise SystemExit(f"not all of these tests pass on the untouched tree:\n{untouched.stdout[-2000:]}")
    NOTICED.unlink(missing_ok=True)
    PAGE.write_text(page(PAGE.read_text(), {mutation.removed: _row(mutation, noticed) for mutation, noticed in rows}))
    missed = [mutation.removed for mutation, noticed in rows if noticed is None]
    for removed in missed:
        sys.stdout.write(f"not noticed: {removed}\n")
    sys.stdout.write(f"{len(rows) - len(missed)} of {len(rows)} noticed; {PAGE.relative_to(ROOT)}\n")
    return 1 if missed else 0


def page(earlier: str, rows: dict[str, str]) -> str:
    """``rows``: by what was taken out; the others are as they were when they last ran."""
    there = {found[1]: found[0] for found in _ROW.finditer(earlier)} | rows
    return _HEAD + "".join(f"{there[one.removed]}\n" for one in MUTATIONS if one.removed in there)


def _copy_to(target: Path) -> None:
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    for file in filter(None, listed.stdout.split("\0")):
        if (ROOT / file).is_file():
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, target / file)


def _noticed_before() -> dict[str, str]:
    """What was taken out → the test."""
    found: dict[str, str] = json.loads(NOTICED.read_text()) if NOTICED.exists() else {}
    return found


def _remember(mutation: Mutation, noticed: str) -> None:
    NOTICED.parent.mkdir(exist_ok=True)
    NOTICED.write_text(json.dumps({**_noticed_before(), mutation.removed: noticed}, indent=1))


def _noticed_by(copy: Path, mutation: Mutation) -> str | None:
    """The first test that failed; None: all passed.

    :raises SystemExit: the mutation does not fit the tree
    """
    sys.stdout.write(f"{mutation.removed} … ")
    sys.stdout.flush()
    with _mutated(copy, mutation.edits):
        result = _pytest(copy, mutation.tests)
    found = first_failed(result.stdout)
    if result.returncode == 0:
        sys.stdout.write("NOT NOTICED\n")
        return None
    if result.returncode != 1 or found is None:
        raise SystemExit(f"the tests could not be run:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    sys.stdout.write(f"{found}\n")
    _remember(mutation, found)
    return found


def first_failed(said: str) -> str | None:
    """Of what pytest printed."""
    found = _FAILED.search(said)
    return None if found is None else found[1]


@contextmanager
def _mutated(copy: Path, edits: tuple[Edit, ...]) -> Iterator[None]:
    texts = {edit.file: (copy / edit.file).read_text() for edit in edits}
    for edit in edits:
        text = (copy / edit.file).read_text()
        if text.count(edit.before) != 1:
            raise SystemExit(f"{edit.file} has {text.count(edit.before)} times: {edit.before}")
        (copy / edit.file).write_text(text.replace(edit.before, edit.after))
    try:
        yield
    finally:
        for file, text in texts.items():
            (copy / file).write_text(text)


def _pytest(copy: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "400"}
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=line", "-p", "no:cacheprovider", *tests]
    return subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True, timeout=_LIMIT_S)


def _row(mutation: Mutation, noticed: str | None) -> str:
    where = ", ".join(f"`{edit.file}`" for edit in mutation.edits)
    shown = "**nothing**" if noticed is None else f"`{noticed}`".replace("|", "&#124;")
    return f"| {mutation.removed} | {where} | {shown} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
