# SPDX-License-Identifier: Apache-2.0
"""What cannot be taken back is asked about, where somebody types; a script is not asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from orchestrator.cli.output import printable, somebody_types
from orchestrator.core.errors import Denied, InvalidInput

_MAX_NAMED: Final = 10

Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        help="Do not ask. Where standard input is no terminal, what is named is done without it; what was not named "
        "one by one needs it.",
    ),
]
"""One rule for all: docs/decisions/command-line.md."""


def confirm(what: str, names: Sequence[str], *, yes: bool) -> None:
    """``what``: the whole question without the names and the mark, like ``delete VM``.

    :raises Denied: ``cli.not_confirmed``
    """
    if not yes and somebody_types():
        _ask(what, names)


def confirm_picked(what: str, names: Sequence[str], *, yes: bool) -> None:
    """The same of things that nobody named one by one: a script says ``--yes``.

    :raises InvalidInput: ``cli.not_confirmed``: nobody is there to ask; :raises Denied: the person said no
    """
    if yes:
        return
    if not somebody_types():
        shown = ", ".join(printable(name) for name in names[:_MAX_NAMED])
        message = f"nobody is here to be asked whether to {what} {shown} ({len(names)} in all); nothing was done"
        raise InvalidInput("cli.not_confirmed", message, hint="the same with --yes does it")
    _ask(what, names)


def _ask(what: str, names: Sequence[str]) -> None:
    shown = ", ".join(printable(name) for name in names[:_MAX_NAMED])
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    if not typer.confirm(f"{what} {shown}{more}?", err=True):
        raise Denied("cli.not_confirmed", "not confirmed, nothing was done", hint="answer y, or add --yes")
