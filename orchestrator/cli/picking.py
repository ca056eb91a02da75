# SPDX-License-Identifier: Apache-2.0
"""Several things at once: by names, by patterns (``web-*``) and by labels (``-l team=vision``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

from orchestrator.cli.confirm import confirm_picked
from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.labels import parse_selector

_PATTERN: Final = re.compile(r"[a-z0-9*?!\[\]-]*[*?\[][a-z0-9*?!\[\]-]*", re.ASCII)
_MAX_PATTERN: Final = 127
Row = TypeVar("Row", bound=Mapping[str, Any])
Rows = Callable[[str | None], Iterable[Mapping[str, Any]]]
"""What there is, of a selector or of all."""


def is_pattern(text: str) -> bool:
    """Whether it stands for the names that fit; no name has these letters."""
    return len(text) <= _MAX_PATTERN and _PATTERN.fullmatch(text) is not None


def names_or_patterns(texts: Sequence[str] | None, check: Callable[[str], str]) -> list[str]:
    """As typed on the command line; ``check`` says what a name is called, or refuses it."""
    return [text if is_pattern(text) else check(text) for text in texts or ()]


def matching(rows: Iterable[Row], patterns: Sequence[str]) -> list[Row]:
    """Those whose names fit one of the patterns, in their order; without patterns all."""
    return [row for row in rows if not patterns or any(fnmatchcase(str(row["name"]), pattern) for pattern in patterns)]


def picked(
    names: Sequence[str] | None, selector: str | None, rows: Rows, *, question: str | None, yes: bool
) -> list[str]:
    """Names as typed, without patterns and labels; else those that there are, which is asked about once.

    ``question``: without the names and the mark, like ``stop VMs``; None: nothing is changed, and nobody is asked.

    :raises InvalidInput: ``cli.usage``: nothing was named; ``cli.not_confirmed``, ``label.…``
    :raises NotFound: ``cli.nothing_picked``; :raises Denied: ``cli.not_confirmed``
    """
    typed = list(dict.fromkeys(names or ()))
    if not typed and selector is None:
        raise InvalidInput("cli.usage", "nothing is named", hint="give names, patterns like 'web-*', or -l LABELS")
    if selector is None and not any(is_pattern(name) for name in typed):
        return typed
    if selector is not None:
        parse_selector(selector)
    known = list(rows(selector))
    plain = [name for name in typed if not is_pattern(name)]
    if selector is None:
        patterns = [name for name in typed if is_pattern(name)]
        chosen = list(dict.fromkeys([*plain, *_names(matching(known, patterns))]))
    else:
        chosen = _names(matching(known, typed))
    if (len(chosen) == len(plain) and selector is None) or not chosen:
        shown = " ".join([*typed, *([] if selector is None else [f"-l {selector}"])])
        raise NotFound("cli.nothing_picked", f"nothing fits {ascii(shown)[:80]}", hint="nothing was done")
    if question is not None:
        confirm_picked(question, chosen, yes=yes)
    return chosen


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return [str(row["name"]) for row in rows]
