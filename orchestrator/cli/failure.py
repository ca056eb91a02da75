# SPDX-License-Identifier: Apache-2.0
"""Failures on standard error: one line, a hint, reasons by group; never a traceback."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

from orchestrator.cli.output import colour, printable
from orchestrator.cli.session import Format
from orchestrator.client.location import state_directory
from orchestrator.core.errors import Reason, VgpuctlError, error_to_dict

BUG_EXIT: Final = 70
MAX_REASONS: Final = 20
MAX_SUBJECTS: Final = 6
"""Of one reason; ``-o json`` has more."""
CLI_LOG: Final = "cli.log"


def print_error(error: VgpuctlError, output: Format) -> int:
    """Say it; the exit code that belongs to it."""
    if output is Format.JSON:
        print(json.dumps({"error": error_to_dict(error)}), file=sys.stderr)
        return error.exit_code
    for line in lines_of(error):
        print(line, file=sys.stderr)
    return error.exit_code


def lines_of(error: VgpuctlError) -> list[str]:
    """``error: message [code]``, then the reasons and the hint."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    head = colour("error:", "red", stream_is_terminal=terminal)
    lines = [f"{head} {printable(error.message)} [{printable(error.code)}]"]
    if not (len(error.reasons) == 1 and error.reasons[0].message in error.message):
        lines += [f"  {_reason(reason)}" for reason in error.reasons[:MAX_REASONS]]
        more = len(error.reasons) - MAX_REASONS
        lines += [f"  and {more} more (-o json has all)"] if more > 0 else []
    if error.hint:
        lines.append(f"{colour('hint:', 'bold', stream_is_terminal=terminal)} {printable(error.hint)}")
    return lines


def _reason(reason: Reason) -> str:
    """``subject: message [code]``; of several subjects the message comes first, as the list of them may be long."""
    if len(reason.subjects) == 1 and reason.count <= 1:
        return printable(f"{reason.subjects[0]}: {reason.message} [{reason.code}]")
    named = ", ".join(reason.subjects[:MAX_SUBJECTS])
    more = max(reason.count, len(reason.subjects)) - MAX_SUBJECTS
    if named and more > 0:
        named += f" and {more} more"
    return printable(f"{reason.message} [{reason.code}]" + (f": {named}" if named else ""))


def report_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """``sys.excepthook``: one line with a number, the traceback in a file under that number."""
    from uuid import uuid4

    number = uuid4().hex[:12]
    where = state_directory() / CLI_LOG
    text = "".join(traceback.format_exception(kind, error, trace))
    noted = _append(where, f"unexpected error {number}: {sys.argv[1:2]}\n{text}\n")
    print(f"error: unexpected error {number} [bug]", file=sys.stderr)
    print(f"hint: {f'the details are in {where}' if noted else f'could not write {where}'}", file=sys.stderr)
    sys.exit(BUG_EXIT)


def _append(path: Path, text: str) -> bool:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("a") as stream:
            stream.write(text)
    except OSError:
        return False
    return True
