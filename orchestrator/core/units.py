# SPDX-License-Identifier: Apache-2.0
"""Sizes and durations that people type (``4GiB``, ``8h``) and the integers the code works with."""

from __future__ import annotations

import re
from math import ceil

from orchestrator.core.errors import InvalidInput

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_DURATION = re.compile(
    r"(?P<number>[1-9][0-9]{0,9}) ?"
    r"(?:(?P<unit>[smhdwy])|(?P<word>sec|second|min|minute|hr|hour|day|week|yr|year)s?)",
    re.ASCII | re.IGNORECASE,
)
_FACTORS = {"KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}
_SIZE = re.compile(
    r"(?P<number>(?:0|[1-9][0-9]{0,9})(?:\.[0-9]{1,6})?) ?(?P<unit>[KMGT])(?:i?B?)", re.ASCII | re.IGNORECASE
)
_NUMBER = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)


def parse_size(text: str, *, field: str, at_least: int, at_most: int) -> int:
    """``4GiB`` as bytes, whole MiB. ``4g``, ``4GB`` and ``4.5 GiB`` too: all units are binary, as GPUs and QEMU count.

    :raises InvalidInput: ``<field>.invalid`` for a malformed size, ``<field>.out_of_range`` for a bad value.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{field}.invalid", f"{field} {text[:40]!a} is not a size", hint=_size_hint(text))
    from decimal import Decimal  # no command that only lists needs it

    size = ceil(Decimal(match["number"]) * _FACTORS[f"{match['unit'].upper()}iB"] / MIB) * MIB
    if not at_least <= size <= at_most:
        raise InvalidInput(
            f"{field}.out_of_range",
            f"{field} {text} is outside {show_size(at_least)} to {show_size(at_most)}",
            hint=f"ask for at least {show_size(at_least)} and at most {show_size(at_most)}",
        )
    return size


def _size_hint(text: str) -> str:
    """A bare number could be bytes, MiB or GiB: nobody guesses which."""
    if _NUMBER.fullmatch(text):
        return f"say the unit: {text}GiB or {text}MiB"
    return "write a number and a unit, for example 512MB, 4G, 4.5GiB or 1TiB; all are binary, 1GB is 1024MB"


def parse_duration(text: str, *, field: str, at_most_s: int) -> int:
    """``8h``, ``1day`` or ``2 weeks`` as seconds; a year has 365 days.

    :raises InvalidInput: ``<field>.invalid`` for a malformed duration, ``<field>.out_of_range`` for one too long
    """
    match = _DURATION.fullmatch(text)
    if match is None or match["unit"] == "M":
        raise InvalidInput(f"{field}.invalid", f"{field} {text[:40]!a} is not a duration", hint=_duration_hint(text))
    unit = (match["unit"] or match["word"])[0].lower()
    seconds = int(match["number"]) * _SECONDS[unit]
    if seconds > at_most_s:
        raise InvalidInput(
            f"{field}.out_of_range",
            f"{field} {text} is too long",
            hint=f"ask for at most {at_most_s // _SECONDS['d']}d",
        )
    return seconds


def _duration_hint(text: str) -> str:
    if _NUMBER.fullmatch(text):
        return f"say the unit: {text}m, {text}h or {text}d"
    return "write a whole number and a unit, for example 45m, 8h, 30d, 2w or 1y; m is minutes"


def times(number: int) -> str:
    """``1 time``, ``2 times``."""
    return show_count(number, "time")


def show_count(number: int, noun: str) -> str:
    """``1 VM``, ``2 VMs``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show_size(size: int) -> str:
    """Bytes as the shortest exact size people can type back, down to MiB: ``4GiB``, ``4.5GiB``, ``4100MiB``, ``0``."""
    if size == 0:
        return "0"
    for unit in ("TiB", "GiB", "MiB"):
        if size >= _FACTORS[unit] and 2 * size % _FACTORS[unit] == 0:
            return f"{size / _FACTORS[unit]:.15g}{unit}"
    return f"{size / MIB:.1f}MiB"
