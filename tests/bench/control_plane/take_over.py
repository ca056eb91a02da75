# SPDX-License-Identifier: Apache-2.0
"""How long an operation lies when the server that runs it is killed, until the other one goes on with it."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from orchestrator.client.autostart import connect_running
from tests.bench.placement.rows import Row, rows_of
from tests.contract.engine.live_site import Site, created
from tests.fakes.forked import Program
from tests.fakes.several import until
from tests.postgres.cluster import cluster

ROUNDS = 5
NAMES = ("one", "two")


def suite() -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory() as directory,
        cluster("max_connections=60") as postgres,
        closing(Site(Path(directory), postgres.database())) as site,
    ):
        servers: dict[str, Program] = {}
        rounds = [_round(site, servers, number) for number in range(ROUNDS)]
    begun, ended = ([one[at] for one in rounds] for at in (0, 1))
    values = {
        "seconds": statistics.median(begun),
        "most_seconds": max(begun),
        "finished_seconds": statistics.median(ended),
    }
    yield from rows_of("operations", "take_over", "2 controllers", values)


def _round(site: Site, servers: dict[str, Program], number: int) -> tuple[float, float]:
    """Seconds after the kill until the other server has begun the operation again, and until it has ended it."""
    site.rearm()
    for name in NAMES:
        if name not in servers or servers[name].poll() is not None:
            servers[name] = site.server(name, "kill", "after", "MakeVgpu")
    until(lambda: all(connect_running(site.state(name)) is not None for name in NAMES))
    operation = created(site, NAMES[number % len(NAMES)], f"vm{number}")
    until(lambda: any(server.poll() is not None for server in servers.values()))
    killed = time.monotonic()
    until(lambda: site.plane.services.operations.get(operation).attempt > 1)
    begun = time.monotonic() - killed
    site.finished(operation)
    return begun, time.monotonic() - killed
