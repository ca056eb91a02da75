# SPDX-License-Identifier: Apache-2.0
"""The map of a fleet that is more than a page of GPUs: a small cell for each host, drawn here, by rack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup

Host = tuple[str, str, int, int, float]
"""Name, state, GPUs, those of them that are unusable, how many are used."""

_COLUMNS: Final = 10
_BLOCK: Final = 100
"""Hosts in one picture: several stand beside each other as the window is wide."""
_PITCH: Final = 14
_STEPS: Final = ((1 / 3, "p1"), (2 / 3, "p2"))


def drawn_racks(racks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``racks``: as the API answers. With sums, and pictures in which each host is a link.

    They are kept from keys and screen readers, for whom ten thousand links are none: the sums are text, and the rack's
    name and the filter lead to its GPUs."""
    return [_rack(rack) for rack in racks]


def _rack(rack: Mapping[str, Any]) -> dict[str, Any]:
    hosts = tuple(zip(rack["hosts"], rack["states"], rack["gpus"], rack["unusable"], rack["used"], strict=True))
    return {
        "name": rack["rack"],
        "hosts": len(rack["hosts"]),
        "states": sorted((state, count) for state, count in Counter(rack["states"]).items() if state != "ready"),
        **{name: sum(rack[name]) for name in ("gpus", "empty", "unusable", "used")},
        "blocks": [_block(hosts[at : at + _BLOCK]) for at in range(0, len(hosts), _BLOCK)],
    }


@lru_cache(maxsize=512)
def _block(hosts: tuple[Host, ...]) -> Markup:
    """Kept, as at each event of a fleet nearly all of them are as before."""
    width, height = min(len(hosts), _COLUMNS) * _PITCH, -(-len(hosts) // _COLUMNS) * _PITCH
    head = f'<svg width="{width}" height="{height}" aria-hidden="true" focusable="false">'
    return Markup(f"{head}{''.join(_cells(hosts))}</svg>")  # noqa: S704 - names are escaped


def _cells(hosts: tuple[Host, ...]) -> Iterator[str]:
    for number, (name, state, gpus, unusable, used) in enumerate(hosts):
        y, x = divmod(number, _COLUMNS)
        kind = _kind(state, gpus, unusable, used)
        about = f"{escape(name)}: {used:g} of {gpus}{f', {unusable} unusable' if unusable else ''}"
        yield (
            f'<a href="hosts/{quote(name, safe="")}" tabindex="-1"><title>{about}</title>'
            f'<rect class="{kind}" x="{x * _PITCH}" y="{y * _PITCH}"/></a>'
        )


def _kind(state: str, gpus: int, unusable: int, used: float) -> str:
    if state != "ready":
        return "bad"
    if unusable == gpus:
        return "used broken" if used else "broken"
    if not used:
        return "free"
    return "used" if used >= gpus else next((kind for most, kind in _STEPS if used <= most * gpus), "p3")
