# SPDX-License-Identifier: Apache-2.0
"""What cannot be taken back is asked about, where somebody types; a script is not asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from orchestrator.cli.output import printable, somebody_types
from orchestrator.core.errors import Denied

_MAX_NAMED: Final = 10

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(what: str, names: Sequence[str], *, yes: bool) -> None:
    """``what``: the whole question without the names and the mark, like ``delete VM``.

    :raises Denied: ``cli.not_confirmed``
    """
    if yes or not somebody_types():
        return
    shown = ", ".join(printable(name) for name in names[:_MAX_NAMED])
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    if not typer.confirm(f"{what} {shown}{more}?", err=True):
        raise Denied("cli.not_confirmed", "not confirmed, nothing was done", hint="answer y, or add --yes")
