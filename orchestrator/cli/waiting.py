# SPDX-License-Identifier: Apache-2.0
"""What an operation waits for, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.cli.ages import show_time
from orchestrator.cli.output import shown


def waits_for(operation: Mapping[str, Any]) -> str | None:
    """The host that it waits for and since when, if its host is out of reach; or that its guest boots."""
    since = operation.get("waits_for_host_since")  # an older server says neither
    if since is None:
        return "its guest to boot" if operation.get("waits_for_guest") else None
    host = operation["waits_for_host"]
    return f"{'its host' if host is None else f'host {shown(host)}'} since {show_time(since)}"
