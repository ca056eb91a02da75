# SPDX-License-Identifier: Apache-2.0
"""Mistakes in what was typed, in our words instead of the parser's."""

from __future__ import annotations

from typing import Any

import typer

from orchestrator.cli.words import ALIKE, OPTIONS, ROOT_OPTIONS
from orchestrator.core.errors import InvalidInput
from orchestrator.core.names import closest

_NUMBERS = {"int": "whole number", "int range": "whole number", "float": "number", "float range": "number"}


def usage_error(error: typer.TyperException) -> InvalidInput:
    """``cli.usage``, with the command's help as the hint where nothing better is known."""
    context = getattr(error, "ctx", None)
    helping = f"run '{'vgpuctl' if context is None else context.command_path} --help'"
    option = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption":
        problem = f"there is no option {ascii(option)[1:-1][:60]}"
        return InvalidInput("cli.usage", problem, hint=_meant(str(option), context) or helping)
    return InvalidInput("cli.usage", " ".join(_said(error, option).split()).rstrip("."), hint=helping)


def _said(error: Any, option: str | None) -> str:
    text, param = str(error.format_message()), getattr(error, "param", None)
    if option is not None:
        return f"{option} needs a value" if "requires" in text else text
    if param is not None:
        name = max(param.opts, key=len) if param.param_type_name == "option" else str(param.name).upper()
        if type(error).__name__ == "MissingParameter":
            return f"{name} is missing"
        return f"{name}: {_of_value(error.message, param.type)}"
    extra = text.partition("unexpected extra argument(s) (")[2].rstrip(").")
    return f"nothing more is taken, got {extra}" if extra else text


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
    word = option.lstrip("-")
    if word in ROOT_OPTIONS:
        return ROOT_OPTIONS[word]
    meant = [name for name in OPTIONS.get(word, ()) if name in known]
    begun = [name for name in known if len(word) > 1 and name.startswith(option)]
    near = meant[:1] or begun or closest(option, known, ALIKE)
    return f"did you mean {', '.join(near)}?" if near else None
