# SPDX-License-Identifier: Apache-2.0
"""A real SQLite database for each run: a copy of one that was migrated and furnished once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from orchestrator.core.vms.image import NewImage
from orchestrator.core.vms.lease import TenantPolicy
from orchestrator.core.vms.network import DEFAULT_NAME, Network
from orchestrator.server.bootstrap import IN_MEMORY_SITE
from orchestrator.sim.in_memory import InMemoryImages
from orchestrator.store.database import Store
from tests.simulated.small_ports import EPOCH_S
from tests.simulated.workload import IMAGE, TENANT

SITE = f"{IN_MEMORY_SITE}000000000000"
_KEY = b"c2ltdWxhdGVkLWhvc3RzLWhhdmUtbm8tc2VjcmV0cyE="
"""Of the encrypted columns: the databases live in memory and for seconds."""
_MEMORY = Path("/dev/shm")


@lru_cache(maxsize=1)
def _template() -> bytes:
    with tempfile.TemporaryDirectory(dir=_directory()) as name:
        store = open_database(_url(Path(name)))
        furnish(store)
        store.close()
        return (Path(name) / "vgpuctl.sqlite").read_bytes()


def furnish(store: Store) -> None:
    """An image and the default network."""
    with store.begin() as tx:
        tx.networks.add(Network(name=DEFAULT_NAME, subnet="192.168.122.0/24", shared=True))
        tx.policies.put(TENANT, TenantPolicy(max_priority="high", preempt=True))
        tx.images.add(InMemoryImages().named(NewImage(name=IMAGE, source="guest.qcow2"), EPOCH_S))


@contextmanager
def fresh_database() -> Iterator[Store]:
    """With an image and the default network, without hosts."""
    with fresh_sqlite() as url:
        store = open_database(url)
        yield store
        store.close()


@contextmanager
def fresh_sqlite() -> Iterator[str]:
    """URL of one as :func:`furnish` leaves it."""
    directory = Path(tempfile.mkdtemp(dir=_directory(), prefix="vgpuctl-"))
    try:
        (directory / "vgpuctl.sqlite").write_bytes(_template())
        yield _url(directory)
    finally:
        shutil.rmtree(directory)


def open_database(url: str) -> Store:
    """As a process does that begins."""
    return Store(url, key=_KEY, new_site=SITE)


def _url(directory: Path) -> str:
    return f"sqlite:///{directory / 'vgpuctl.sqlite'}"


def _directory() -> Path | None:
    return _MEMORY if _MEMORY.is_dir() else None
