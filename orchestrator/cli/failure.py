# SPDX-License-Identifier: Apache-2.0
"""How a failure is printed, and mistakes in what was typed, in our words instead of the parser's."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import typer

from orchestrator.cli.examples import examples_of
from orchestrator.cli.output import colour, printable
from orchestrator.cli.session import Format
from orchestrator.cli.words import ALIKE, OPTIONS, OTHER_COMMANDS, QUOTED_PROFILE, ROOT_OPTIONS
from orchestrator.client.location import state_directory
from orchestrator.core.errors import InvalidInput, Reason, VgpuctlError, error_to_dict
from orchestrator.core.gpu.vgpu_type import is_vgpu_type_name
from orchestrator.core.names import closest

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


_NUMBERS = {"int": "whole number", "int range": "whole number", "float": "number", "float range": "number"}


def usage_error(error: typer.TyperException) -> InvalidInput:
    """``cli.usage``, with the command's help as the hint where nothing better is known."""
    context = getattr(error, "ctx", None)
    helping = f"run '{'vgpuctl' if context is None else context.command_path} --help'"
    option = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption":
        problem = f"there is no option {ascii(option)[1:-1][:60]}"
        return InvalidInput("cli.usage", problem, hint=_meant(str(option), context) or helping)
    if is_vgpu_type_name(f"NVIDIA {_surplus(error)}"):
        return InvalidInput("cli.usage", f"nothing more is taken, got {_surplus(error)}", hint=QUOTED_PROFILE)
    example = _example(context, getattr(error, "param", None))
    hint = helping if example is None else f"{helping}; for example 'vgpuctl {example}'"
    return InvalidInput("cli.usage", " ".join(_said(error, option).split()).rstrip("."), hint=hint)


def _example(context: Any, missing: Any) -> str | None:
    """One of the command's with what is ``missing``, else with any option: what stands alone is taken by some."""
    words = "" if context is None else context.command_path.partition(" ")[2]
    examples = examples_of(words)
    if missing is not None and missing.param_type_name == "argument":
        return next(iter(examples), None)
    wanted = [] if missing is None else missing.opts
    for example in examples:
        typed = example.split()
        if any(word in typed for word in wanted) or (not wanted and any(word.startswith("-") for word in typed)):
            return example
    return None


def _said(error: Any, option: str | None) -> str:
    text, param = str(error.format_message()), getattr(error, "param", None)
    if option is not None:
        return f"{option} needs a value" if "requires" in text else text
    if param is not None:
        shown = (param.metavar or str(param.name).upper()).removesuffix("...")
        name = max(param.opts, key=len) if param.param_type_name == "option" else shown
        if type(error).__name__ == "MissingParameter":
            return f"{name} is missing"
        return f"{name}: {_of_value(error.message, param.type)}"
    extra = _surplus(error)
    return f"nothing more is taken, got {extra}" if extra else text


def _surplus(error: Any) -> str:
    """What was typed and no argument takes; empty: nothing."""
    return str(error.format_message()).partition("unexpected extra argument(s) (")[2].rstrip(").")


def _of_value(message: str, kind: Any) -> str:
    """``'two' is no whole number``, ``70 is not in 1 to 64``, ``'x' is none of a, b``."""
    value = message.partition(" is not ")[0]
    if " is not in the range" in message:
        return f"{value} is not {_bounds(kind.min, kind.max)}"
    if " is not a valid" in message and kind.name in _NUMBERS:
        return f"{value} is no {_NUMBERS[kind.name]}"
    if " is not one of" in message:
        return f"{value} is none of {', '.join(str(getattr(choice, 'value', choice)) for choice in kind.choices)}"
    return message[:1].lower() + message[1:]


def _bounds(least: object, most: object) -> str:
    if most is None:
        return f"at least {least}"
    return f"at most {most}" if least is None else f"in {least} to {most}"


def _meant(option: str, context: Any) -> str | None:
    """Of another tool, or spelt alike."""
    parameters = () if context is None else context.command.params
    known = [name for param in parameters for name in param.opts if name.startswith("--")]
    word, path = option.lstrip("-"), "" if context is None else context.command_path
    instead = OTHER_COMMANDS.get((path.partition(" ")[2], word)) or ROOT_OPTIONS.get(word)
    if instead is not None:
        return instead
    meant = [name for name in OPTIONS.get(word, ()) if name in known]
    begun = [name for name in known if len(word) > 1 and name.startswith(option)]
    near = meant[:1] or begun or closest(option, known, ALIKE)
    return f"did you mean {', '.join(near)}?" if near else None
