# SPDX-License-Identifier: Apache-2.0
"""Names that the shell completes. Asks a server that runs; a press of Tab never starts one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.client.location import state_directory
from orchestrator.core.errors import VgpuctlError

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,99}")
"""A shell evaluates what it completes."""


def _names(ask: Callable[[Client], Iterable[Mapping[str, Any]]], incomplete: str, key: str = "name") -> list[str]:
    try:
        connection = connect_running(state_directory())
        rows = ask(Client(connection)) if connection is not None else ()
        found = {str(row[key]) for row in rows if str(row[key]).startswith(incomplete)}
        return sorted(name for name in found if _PLAIN.fullmatch(name))
    except VgpuctlError:
        return []


def vms(incomplete: str) -> list[str]:
    return _names(lambda client: client.vms(), incomplete)


def hosts(incomplete: str) -> list[str]:
    return _names(lambda client: client.hosts(), incomplete)


def images(incomplete: str) -> list[str]:
    return _names(lambda client: client.images(), incomplete)


def networks(incomplete: str) -> list[str]:
    return _names(lambda client: client.networks(), incomplete)


def volumes(incomplete: str) -> list[str]:
    return _names(lambda client: client.volumes(), incomplete)


def profiles(incomplete: str) -> list[str]:
    return _names(lambda client: client.profiles(), incomplete)


def offerings(incomplete: str) -> list[str]:
    return _names(lambda client: client.offerings(), incomplete)


def tenants(incomplete: str) -> list[str]:
    return _names(lambda client: client.tenants(), incomplete)


def operations(incomplete: str) -> list[str]:
    return _names(lambda client: client.operations(beginning=incomplete or None), incomplete, "id")
