# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.bench.server_path [--hosts N …] [--policy P …]``: writes build/bench/server_path.json.

Cases that are not run keep the rows they have.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from orchestrator.core.errors import VgpuctlError
from tests.bench.placement.rows import Row, keep, read, rows_of, table
from tests.bench.server_path.measure import measured
from tests.bench.server_path.site import Site, site
from tests.postgres.cluster import cluster

REPORT: Final = Path("build/bench/server_path.json")
HOSTS: Final = (10, 1000, 10_000)
POLICIES: Final = ("sqlite", "postgresql")
SUITE: Final = "server_path"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.server_path")
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS)
    parser.add_argument("--policy", choices=POLICIES, nargs="+", default=POLICIES)
    wanted = parser.parse_args()
    for hosts in wanted.hosts:
        for policy in wanted.policy:
            keep(_case(hosts, policy), REPORT)
    sys.stdout.write(f"{table(read(REPORT))}\n")


def _case(hosts: int, policy: str) -> Iterator[Row]:
    with ExitStack() as held:
        directory = Path(held.enter_context(tempfile.TemporaryDirectory()))
        server = held.enter_context(cluster("max_connections=60")) if policy == "postgresql" else None
        here = held.enter_context(site(directory, hosts, None if server is None else server.database()))
        for metric, value in _values(here):
            print(
                f"{time.strftime('%X')} load {os.getloadavg()[0]:.1f} {hosts} {policy} {metric} {value:.4g}", flush=True
            )
            yield from rows_of(SUITE, f"hosts={hosts}", policy, {metric: value})


def _values(here: Site) -> Iterator[tuple[str, float]]:
    """As far as the server answers: what it does not answer in time is no figure."""
    first = here.start()
    print(f"first start: {first:.1f} s", flush=True)
    here.stop()
    yield "restart_ready_s", here.start()
    yield "restart_core_s", here.core_seconds()
    try:
        yield from measured(here)
    except VgpuctlError as error:
        print(f"no further figures: {error.message} [{error.code}] {error.details or ''}", flush=True)


if __name__ == "__main__":
    main()
