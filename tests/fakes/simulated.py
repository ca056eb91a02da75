# SPDX-License-Identifier: Apache-2.0
"""A server of the product whose hosts live in memory, and what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.client.client import Client
from orchestrator.client.connection import Json
from orchestrator.core.units import GIB
from tests.fakes.running import client_of, running_server


@contextmanager
def serving(state: Path, hosts: Path) -> Iterator[Client]:
    """A client of it while it serves. ``hosts``: the file of a fleet, or the socket of hosts that are there."""
    server = running_server(state, "--simulate", str(hosts), module="orchestrator.server.serve")
    with server, client_of(state) as client:
        yield client


@contextmanager
def serving_fleet(directory: Path, fleet: str) -> Iterator[Client]:
    """A new one with the hosts of ``fleet``, its state in ``directory/state``."""
    file = directory / "fleet.yaml"
    file.write_text(fleet)
    with serving(directory / "state", file) as client:
        yield client


def wish(name: str, profile: str, **more: object) -> Json:
    """A small VM."""
    base = {"name": name, "tenant": "default", "profile": profile, "image": "demo", "vcpus": 2, "memory_mib": 1024}
    return {**base, "disk_bytes": GIB, **more}
