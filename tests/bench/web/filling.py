# SPDX-License-Identifier: Apache-2.0
"""A fleet full of VMs in a minute or two: one host gets its VMs as every host does, all others become copies of it.

What is copied is text: rows of the database and the file of the machine in memory, with other names and ids in them.
The server is stopped meanwhile; when it looks at its hosts again it finds nothing to repair.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import NAMESPACE_OID, uuid5

from tests.fakes.simulated import serving, wish

_OF_HOST: Final = ("vms", "gpu_cuts", "slot_claims", "function_claims", "host_claims", "operations")
"""Tables whose rows belong to a host; the others that are copied hang on these."""
_LIMIT_S: Final = 120.0
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_Rows = dict[str, list[dict[str, Any]]]


def fill(state: Path, fleet: Path, profile: str, vms: int) -> None:
    """``vms`` on each host of the fleet, whose hosts are alike and have none yet; no server runs in ``state``."""
    with serving(state, fleet) as client:
        host = client.hosts()[0]["name"]
        for number in range(vms):
            client.create_vm({**wish(f"{host}-vm-{number}", profile), "host": host})
        for operation in client.operations():
            client.wait(operation["id"])
        addresses = [address for vm in client.vms() for address in vm["addresses"]]
        with sqlite3.connect(state / "vgpuctl.sqlite") as database:
            _wait_until(lambda: all(_is_seen(database, host, address) for address in addresses))
    with sqlite3.connect(state / "vgpuctl.sqlite") as database:
        database.row_factory = sqlite3.Row
        _copy(database, host, state / "machines")


def _is_seen(database: sqlite3.Connection, host: str, address: str) -> bool:
    """Whether the last look there is on record, and was compared with what is wanted."""
    query = "SELECT 1 FROM looks JOIN snapshots USING (host) WHERE host = ? AND judged = digest AND instr(document, ?)"
    return database.execute(query, (host, f'"{address}"')).fetchone() is not None


def _wait_until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not ready():
        assert time.monotonic() < deadline, "the host was not looked at"
        time.sleep(0.5)


def _copy(database: sqlite3.Connection, host: str, machines: Path) -> None:
    rows = {table: _rows_of(database, table, "host", host) for table in (*_OF_HOST, "looks", "snapshots")}
    rows["steps"] = [
        step for operation in rows["operations"] for step in _rows_of(database, "steps", "operation", operation["id"])
    ]
    named = {row["name"]: row for row in map(dict, database.execute("SELECT name, address, machine_id FROM hosts"))}
    kept = (machines / named[host]["address"]).read_text()
    ids = {row["id"] for table in ("vms", "operations") for row in rows[table]}
    text = json.dumps({"rows": rows, "machine": kept})
    for other in named.keys() - {host}:
        copied = json.loads(_renamed(text, named[host], named[other], ids))
        (machines / named[other]["address"]).write_text(copied["machine"])
        _store(database, other, copied["rows"])
    database.execute("UPDATE looks SET turn = (SELECT max(ended_turn) FROM operations)")
    database.execute(
        "UPDATE host_usage SET (vcpus, memory_mib, disk_bytes) ="
        " (SELECT sum(vcpus), sum(memory_mib), sum(disk_bytes) FROM host_claims WHERE host = ?)", (host,)
    )  # fmt: skip
    database.execute("UPDATE tenant_usage SET used = used * ?", (len(named),))


def _rows_of(database: sqlite3.Connection, table: str, column: str, value: str) -> list[dict[str, Any]]:
    return [dict(row) for row in database.execute(f"SELECT * FROM {table} WHERE {column} = ?", (value,))]


def _renamed(text: str, host: Mapping[str, str], other: Mapping[str, str], ids: set[str]) -> str:
    """As of that other host: a machine's number is in its ids and in its cards' ids. Ids begin as before, as a host
    tells of its VMs by their order."""

    def copied(found: re.Match[str]) -> str:
        own = found[0]
        return own[:8] + str(uuid5(NAMESPACE_OID, other["name"] + own))[8:] if own in ids else own

    mine, its = int(host["machine_id"], 16), int(other["machine_id"], 16)
    text = _UUID.sub(copied, text).replace(host["machine_id"], other["machine_id"])
    text = text.replace(f"GPU-{mine:08x}-", f"GPU-{its:08x}-").replace(str(mine), str(its))
    return re.sub(rf"\b{re.escape(host['name'])}(?![0-9])", other["name"], text)


def _store(database: sqlite3.Connection, host: str, rows: _Rows) -> None:
    document = rows.pop("snapshots")[0]["document"]
    digest = hashlib.sha256(document.encode()).hexdigest()
    observed = {**rows.pop("looks")[0], "digest": digest, "judged": digest}
    database.execute("UPDATE snapshots SET document = ? WHERE host = ?", (document, host))
    assigned = ", ".join(f"{column} = :{column}" for column in observed)
    database.execute(f"UPDATE looks SET {assigned} WHERE host = :host", observed)
    for table, copies in rows.items():
        columns = list(copies[0])
        marks = ", ".join("?" * len(columns))
        values = [[row[column] for column in columns] for row in copies]
        database.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", values)
