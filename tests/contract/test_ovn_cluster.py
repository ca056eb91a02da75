# SPDX-License-Identifier: Apache-2.0
"""OVN's northbound as a cluster of three servers (RAFT), whose leader is killed while cards are written."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.adapters.ovn.ovsdb import OvsdbClient
from orchestrator.core.errors import Retryable
from orchestrator.core.northbound.networks import TABLES, Card, card_rows, network_rows, rows_of
from orchestrator.core.northbound.rows import difference, inserted, left_over, operations_of
from orchestrator.core.overlay import OvnNetwork
from orchestrator.core.vms.network import Network
from tests.fakes.several import until

SITE: Final = "site"
BLUE: Final = Network(name="acme.blue"), OvnNetwork(id="blue", subnets=("10.0.0.0/24",))
CARDS: Final = tuple(
    Card(vm=f"vm-{number}", name=f"vm-{number}", number=0, addresses=(f"10.0.0.{number + 2}",), hosts=("gpu-1",))
    for number in range(30)
)
SCHEMA: Final = "/usr/share/ovn/ovn-nb.ovsschema"
Members = dict[str, "subprocess.Popen[bytes]"]


def _endpoint(root: Path, name: str) -> str:
    return f"unix:{root / name}.sock"


def _begun(root: Path, name: str) -> subprocess.Popen[bytes]:
    words = [f"--remote=p{_endpoint(root, name)}", f"--unixctl={root / name}.ctl", f"--log-file={root / name}.log"]
    return subprocess.Popen(["ovsdb-server", *words, str(root / f"{name}.db")], cwd=root, stderr=subprocess.DEVNULL)


@contextmanager
def cluster(root: Path) -> Iterator[Members]:
    members: Members = {}
    try:
        for name in ("one", "two", "three"):
            first = ["create-cluster", f"{name}.db", SCHEMA, f"unix:{root / name}.raft"]
            more = ["join-cluster", f"{name}.db", "OVN_Northbound", f"unix:{root / name}.raft", f"unix:{root}/one.raft"]
            subprocess.run(["ovsdb-tool", *(more if members else first)], cwd=root, check=True, timeout=60)
            members[name] = _begun(root, name)
            _wait_for(root, name)
        yield members
    finally:
        for process in members.values():
            process.kill()
            process.wait()


def _state(root: Path, name: str) -> bool | None:
    """Whether it leads the others; None: it is not one of them yet."""
    try:
        with OvsdbClient(_endpoint(root, name), None) as client:
            (rows,) = client.select("_Server", ("Database", ("name", "connected", "leader")))
    except Retryable:
        return None
    return next((bool(row["leader"]) for row in rows if row["name"] == "OVN_Northbound" and row["connected"]), None)


def _wait_for(root: Path, name: str) -> None:
    until(lambda: _state(root, name) is not None, f"{name} is a member", 30)


def _leader(root: Path, members: Members) -> str | None:
    return next((name for name in members if _state(root, name)), None)


def _write(northbound: OvnNorthbound, card: Card) -> bool:
    """As the step of an operation does, which is tried again."""
    beneath, own = network_rows(*BLUE), card_rows(*BLUE, card)
    try:
        with northbound.open() as session:
            try:
                session.change(inserted(own, beneath, SITE))
            except Retryable as error:
                if error.code != "ovn.outdated":
                    raise
                rows = (*beneath, *own)
                session.change(operations_of(difference(rows, session.read(rows), SITE)))
    except Retryable:
        return False
    return True


def test_cards_are_written_over_the_death_of_the_leader_each_of_them_once(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        northbound = OvnNorthbound(endpoints=tuple(_endpoint(tmp_path, name) for name in members), trust=lambda: None)
        until(lambda: _leader(tmp_path, members) is not None, "a leader", 30)
        dead: list[str] = []
        for number, card in enumerate(CARDS):
            if number in {10, 20}:
                if dead:
                    members[dead[-1]] = _begun(tmp_path, dead[-1])
                    _wait_for(tmp_path, dead[-1])
                until(lambda: _leader(tmp_path, members) is not None, "a leader", 30)
                dead.append(str(_leader(tmp_path, members)))
                members[dead[-1]].kill()
                members[dead[-1]].wait()
            until(partial(_write, northbound, card), card.name, 30)
        assert len(dead) == 2
        rows = tuple(rows_of([(*BLUE, CARDS)], {}))
        with northbound.open() as session:
            existing = session.read_all(SITE, TABLES)
        assert (difference(rows, existing, SITE), left_over(rows, existing, SITE)) == ((), ())
        assert len(existing) == len(rows)
