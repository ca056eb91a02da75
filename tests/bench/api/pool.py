# SPDX-License-Identifier: Apache-2.0
"""A pool with many VMs, made quickly: one VM is created by the product, the others are its row under other names."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.adapters.state.keys import database_key
from orchestrator.client.client import Client
from orchestrator.core.units import GIB
from orchestrator.store.database import Store
from orchestrator.store.sqlite.backup import url_of
from tests.fakes import simulated

FLEET: Final = """\
groups:
  - {name: l40s, count: 10, gpu_model: L40S, gpus_per_host: 8, vcpus: 128, memory_gib: 1024}
"""
WISH: Final = {
    "name": "vm-0", "profile": "NVIDIA L40S-12Q", "image": "demo", "vcpus": 2, "memory_mib": 1024, "disk_bytes": GIB,
    "start": False,
}  # fmt: skip
_TENANT: Final = "default"


@contextmanager
def serving(state: Path) -> Iterator[Client]:
    """The server, and a client of it."""
    fleet = state.parent / "fleet.yaml"
    fleet.write_text(FLEET)
    with simulated.serving(state, fleet) as client:
        yield client


def create_first(client: Client) -> None:
    """``vm-0``, by the product."""
    client.wait(client.create_vm(WISH))


def multiply(state: Path, total: int) -> None:
    """So many VMs in all; the server is down meanwhile."""
    key = database_key(state / "secrets" / "database_key")
    store = Store(url_of(state / "vgpuctl.sqlite"), key=key, new_site=str(uuid.uuid4()))
    with store.begin() as tx:
        present = tx.vms.list(tenant=_TENANT)
        for number in range(len(present), total):
            spec = replace(present[0].spec, name=f"vm-{number}")
            tx.vms.add(replace(present[0], id=str(uuid.uuid4()), spec=spec))
    store.close()
