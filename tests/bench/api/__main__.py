# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.bench.api``: writes build/bench/api.json."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orchestrator.client.autostart import server_info
from tests.bench.api.commands import command_seconds
from tests.bench.api.load import CLIENTS, under_load
from tests.bench.api.pool import WISH, create_first, multiply, serving
from tests.bench.control_plane.memory import memory_mib
from tests.bench.placement.rows import Row, rows_of, table, write

REPORT: Final = Path("build/bench/api.json")
MANY: Final = 10_000
REQUESTS: Final = {
    "show a VM": lambda client: client.vm("vm-0", "default"),
    "list VMs": lambda client: client.vms("default"),
    "plan a VM": lambda client: client.plan_vm({**WISH, "name": "planned"}),
}


def _rows(state: Path) -> Iterator[Row]:
    with serving(state) as client:
        create_first(client)
        for case, request in REQUESTS.items():
            yield from rows_of("api", f"{case}, 1 VM", f"{CLIENTS} clients", under_load(state, request))
        yield from rows_of("cli", "--help", "warm server", command_seconds(state, "--help"))
        yield from rows_of("cli", "list-vms, 1 VM", "warm server", command_seconds(state, "list-vms"))
    multiply(state, MANY)
    with serving(state) as client:
        case = f"list-vms, {MANY} VMs"
        yield from rows_of("cli", case, "warm server", command_seconds(state, "list-vms"))
        show = REQUESTS["show a VM"]
        yield from rows_of("api", f"show a VM, {MANY} VMs", f"{CLIENTS} clients", under_load(state, show))
        pid = int(server_info(client.connection)["pid"])
        yield from rows_of("memory", f"{MANY} VMs", "serve", {"most_mib": memory_mib(pid, most=True)})


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        rows = list(_rows(Path(directory) / "state"))
    write(rows, REPORT)
    sys.stdout.write(f"{table(rows)}\n")


if __name__ == "__main__":
    main()
