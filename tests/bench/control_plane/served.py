# SPDX-License-Identifier: Apache-2.0
"""Creates and deletes per second, asked over HTTP of a real server; its hosts answer at once, in their own process."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.client.client import Client
from tests.bench.placement.rows import Row, rows_of
from tests.bench.server_path.site import Site, site, wish
from tests.postgres.cluster import cluster

SECONDS: Final = float(os.environ.get("VGPUCTL_BENCH_SECONDS", "60"))
WARM_S: Final = 5.0
HOSTS: Final = 20
CLIENTS: Final = 24
"""Each waits for what it has asked for before it asks for the next."""
NEVER: Final = 2**60
"""A revision that no operation reaches: the answer comes when it has ended."""


def suite(policies: Sequence[str]) -> Iterator[Row]:
    for case in policies:
        with ExitStack() as held:
            directory = Path(held.enter_context(tempfile.TemporaryDirectory()))
            server = held.enter_context(cluster("max_connections=60")) if case == "postgresql" else None
            url = None if server is None else server.database()
            here = held.enter_context(site(directory, HOSTS, url, "--guest-boots-s=0"))
            here.start()
            yield from rows_of("operations", case, f"{CLIENTS} clients", _measured(here))


def _measured(here: Site) -> dict[str, float]:
    ended: list[float] = []
    begin = time.monotonic() + WARM_S
    clients = [
        threading.Thread(target=_client, args=(here.client(), f"vm{number}", begin + SECONDS, ended))
        for number in range(CLIENTS)
    ]
    for one in clients:
        one.start()
    time.sleep(WARM_S)
    used = here.core_seconds()
    time.sleep(max(0.0, begin + SECONDS - time.monotonic()))
    used = here.core_seconds() - used
    for one in clients:
        one.join()
    counted = sum(begin <= at <= begin + SECONDS for at in ended)
    return {"operations_per_s": counted / SECONDS, "server_core_ms_per_operation": 1000 * used / max(1, counted)}


def _client(client: Client, name: str, until: float, ended: list[float]) -> None:
    """Makes VMs and deletes them, one after the other."""
    for number in itertools.count():
        vm = f"{name}-{number}"
        for begun in (partial(client.create_vm, wish(vm)), partial(client.delete_vm, vm, "default")):
            if time.monotonic() > until:
                return
            operation = str(begun()["operation"])
            while (state := client.operation(operation, wait_s=30, since=NEVER)["state"]) in {"queued", "running"}:
                continue
            assert state == "done", f"{vm} ended {state}"
            ended.append(time.monotonic())
