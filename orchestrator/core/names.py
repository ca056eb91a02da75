# SPDX-License-Identifier: Apache-2.0
"""Names that people give to VMs, hosts, tenants, images and networks, and digests as they give them.

A name becomes a libvirt domain name, a file name, a host name and a column in a table,
so it is what RFC 1123 allows as a label: nothing in it can ever be syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from orchestrator.core.errors import InvalidInput

NAME_PATTERN = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_LOOKS: Final = str.maketrans("ol", "01")
"""What is read for what."""
_MAX_COMPARED = 2000
"""Comparing takes time, and a hint is worth only so much of it."""
_NAME = re.compile(NAME_PATTERN, re.ASCII)
_FORM: Final = "use 1 to 63 lower-case letters, digits and '-', starting and ending with a letter or digit"
_READS: Final = (
    "to have it read only, NAME:ro in --volume and in files, or 'vgpuctl volume attach NAME VM --read-only'; no name "
    "has a colon"
)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def is_uuid(text: str) -> bool:
    """In the kernel's own form, which also keeps the text from being a path."""
    return _UUID.fullmatch(text) is not None


def name_or_id(text: str, *, what: str) -> str:
    """The same as :func:`check_name`, or a UUID as others print it, in lower case: no name has a capital letter.

    :raises InvalidInput: ``<what>.name_invalid``
    """
    return text.lower() if is_uuid(text.lower()) else check_name(text, what=what)


def check_name(text: str, *, what: str) -> str:
    """The name itself when it is legal.

    :raises InvalidInput: ``<what>.name_invalid``
    """
    if not is_name(text):
        raise InvalidInput(
            f"{what.replace(' ', '_')}.name_invalid",
            f"{what} name {_shown(text)} is not allowed",
            hint=_READS if what == "volume" and ":" in text else _FORM,
        )
    return text


def closest(text: str, known: Iterable[str], alikeness: float = 0.6) -> list[str]:
    """At most three that may be meant, the likeliest first: those that look alike, then those spelt alike.

    ``alikeness``: of the spelling, 0 to 1; words of a language have to be more alike than names."""
    from difflib import get_close_matches

    names = list(known)[:_MAX_COMPARED]
    seen = text.translate(_LOOKS)
    alike = [name for name in names if name.rpartition("/")[2].translate(_LOOKS) == seen]
    return list(dict.fromkeys([*alike, *get_close_matches(text, names, cutoff=alikeness)]))[:3]


def near(text: str, known: Iterable[str], command: str) -> str:
    """A hint: what was probably meant, else the command that shows what there is."""
    closest_names = closest(text, known)
    return f"did you mean {', '.join(closest_names)}?" if closest_names else f"'{command}' shows them"


def _shown(text: str) -> str:
    """Quoted, escaped and short, so that a hostile name cannot draw on the terminal."""
    escaped = ascii(text)
    return escaped if len(escaped) <= 70 else escaped[:66] + "...'"


_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII | re.IGNORECASE)


def check_sha256(text: str | None, code: str) -> str | None:
    """In lower case; None: none was given. ``code``: of the refusal.

    :raises InvalidInput: ``code``
    """
    if text is not None and _SHA256.fullmatch(text) is None:
        raise InvalidInput(code, "a SHA-256 has 64 hexadecimal digits", hint="write the output of sha256sum")
    return None if text is None else text.lower()
