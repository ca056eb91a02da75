# SPDX-License-Identifier: Apache-2.0
"""User data as cloud-init would be able to read it: of what is not YAML it warns in a log of the guest, and goes on
without (cloud-init, "cloud-config" user data)."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import yaml

from orchestrator.core.errors import InvalidInput

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CLOUD_CONFIG: Final = "#cloud-config"
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})


def check_cloud_config(plain: str) -> None:
    """Plain user data that begins with ``#cloud-config`` is a mapping. Only of new VMs: one that is there keeps what it
    has.

    :raises InvalidInput: ``user_data.invalid``"""
    why = _why_none(plain) if plain.startswith(_CLOUD_CONFIG) else None
    if why is not None:
        hint = "'cloud-init schema -c FILE' checks it, where cloud-init is installed"
        raise InvalidInput("user_data.invalid", f"user data is nothing that cloud-init reads: {why}", hint=hint)


def _why_none(text: str) -> str | None:
    """Why it is no mapping; None: it is one, or nothing. Read event by event: nothing of it is built."""
    documents = 0
    try:
        events = list(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        return f"line {error.problem_mark.line + 1 if error.problem_mark else 1}: {error.problem}"
    except (yaml.YAMLError, ValueError) as error:
        return str(error).splitlines()[0]
    for event, root in pairwise(events):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            empty = isinstance(root, yaml.ScalarEvent) and root.value in _NULL
            if documents > 1 or not (empty or isinstance(root, yaml.MappingStartEvent)):
                what = "a second document begins" if documents > 1 else "no mapping, KEY: VALUE, begins"
                return f"line {root.start_mark.line + 1 if root.start_mark else 1}: {what} here"
    return None
