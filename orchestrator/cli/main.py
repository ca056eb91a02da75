# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl``: builds the command tree, runs one command, turns every failure into one line and an exit code."""

from __future__ import annotations

import os
import sys
from itertools import pairwise

import typer
from typer.completion import get_completion_inspect_parameters

from orchestrator.cli.failure import print_error, report_bug, usage_error
from orchestrator.cli.output import PIPE_EXIT
from orchestrator.cli.scope import with_owners
from orchestrator.cli.session import CliSession, Format
from orchestrator.cli.tree import COMPLETE_VARIABLE, build, with_tenant
from orchestrator.core import interpreter
from orchestrator.core.errors import Fatal, InvalidInput, VgpuctlError


def run(arguments: list[str]) -> int:
    """One command; its exit code. Failures are printed, nothing but bugs escapes."""
    session = CliSession()
    if COMPLETE_VARIABLE in os.environ:
        get_completion_inspect_parameters()  # registers typer's way of answering shells
    if _wants_json(arguments):
        session.format = Format.JSON
    try:
        result = build().main(
            args=arguments,
            prog_name="vgpuctl",
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
            obj=session,
        )
    except VgpuctlError as error:
        error.hint = with_tenant(error.hint, session.named_tenant)
        if error.code == "request.invalid" and session.command:
            error.hint = f"run 'vgpuctl {session.command} --help'"  # the server's is for programs
        return print_error(with_owners(error, session), session.format)
    except typer.Abort:
        return print_error(
            InvalidInput(
                "cli.not_confirmed",
                "not confirmed, nothing was done",
                hint="answer y, or see in --help how to confirm without being asked",
            ),
            session.format,
        )
    except typer.TyperException as error:
        return print_error(usage_error(error), session.format)
    return result if isinstance(result, int) else 0


def _wants_json(arguments: list[str]) -> bool:
    """Whether a mistake in the arguments themselves should be said as JSON."""
    pairs = list(pairwise(arguments))
    return ("-o", "json") in pairs or ("--output", "json") in pairs or bool({"-ojson", "--output=json"} & {*arguments})


def main() -> None:
    """Entry point of the installed command."""
    sys.excepthook = report_bug
    interpreter.tune_command()
    try:
        code = run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        code = _reader_went_away()
    except OSError as error:
        code = print_error(
            Fatal(
                "cli.io",
                f"cannot read or write: {error.strerror or error}",
                hint="look whether the disk is full or a file is protected",
            ),
            Format.TABLE,
        )
        _discard_output()
    interpreter.keep_all_objects()
    sys.exit(code)


def _reader_went_away() -> int:
    _discard_output()
    return PIPE_EXIT


def _discard_output() -> None:
    """What is still buffered cannot be written: let the interpreter's last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    main()
