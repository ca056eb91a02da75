# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sizes and durations as the command line of vgpuctl takes them; the server takes numbers only."""

from __future__ import annotations

import math
import re
from decimal import Decimal

MIB = 1024 * 1024
FACTORS = {"k": 1024, "m": MIB, "g": 1024 * MIB, "t": 1024 * 1024 * MIB}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
SIZE = re.compile(
    r"(?P<number>(?:0|[1-9][0-9]{0,9})(?:\.[0-9]{1,6})?) ?(?P<unit>[KMGT])(?:i?B?)", re.ASCII | re.IGNORECASE
)
DURATION = re.compile(
    r"(?P<number>[1-9][0-9]{0,9}) ?"
    r"(?:(?P<unit>[smhdwy])|(?P<word>sec|second|min|minute|hr|hour|day|week|yr|year)s?)",
    re.ASCII | re.IGNORECASE,
)


def bytes_of(text):
    """``40GB`` or ``4.5GiB`` as bytes, whole MiB; units are binary. For argument specs: ValueError is told as it is."""
    match = SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!a} is not a size: write a number and a unit, for example 512MB, 4G or 4.5GiB")
    return math.ceil(Decimal(match["number"]) * FACTORS[match["unit"].lower()] / MIB) * MIB


def mib_of(text):
    """The same in MiB."""
    return bytes_of(text) // MIB


def seconds_of(text):
    """``8h``, ``1day`` or ``2 weeks`` as seconds."""
    match = DURATION.fullmatch(text)
    if match is None or match["unit"] == "M":
        raise ValueError(f"{text!a} is not a duration: write a whole number and a unit, for example 45m, 8h or 30d")
    return int(match["number"]) * SECONDS[(match["unit"] or match["word"])[0].lower()]
