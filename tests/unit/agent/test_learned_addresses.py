# SPDX-License-Identifier: Apache-2.0
"""Addresses of cards on bridges of the host, as libvirt's filters have learned them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.addresses import learned_of
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.domains import Domains
from tests.unit.agent.fake_timing import FakeTiming

MAC, OTHER = "52:54:00:00:00:01", "52:54:00:00:00:02"
SERVER = "192.0.2.1"


@pytest.fixture
def vm() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "nwfilter.leases"


def lines(file: Path, *said: str) -> None:
    """``until`` of each is said in seconds from now; 0 is 0."""
    now = int(time.time())
    words = (line.split(maxsplit=1) for line in said)
    file.write_text("".join(f"{now + int(until) if int(until) else 0} {rest}\n" for until, rest in words))


def test_the_last_word_about_a_card_counts(vm: str, file: Path) -> None:
    lines(
        file,
        f"600 {vm}-{MAC} 192.0.2.10 {SERVER}",
        f"600 {vm}-{OTHER} 192.0.2.20 {SERVER}",
        f"-600 {vm}-{OTHER} 192.0.2.21 {SERVER}",
        f"600 {uuid.uuid4()}-{MAC} 192.0.2.30 {SERVER}",
        f"600 {vm}-{MAC} 192.0.2.11 {SERVER}",
        f"0 {vm}-{MAC} 192.0.2.10 {SERVER}",
    )
    assert learned_of(file, vm) == {(MAC, "192.0.2.11"), (OTHER, "192.0.2.20")}


@pytest.mark.parametrize(
    "line",
    ["600", "x y 192.0.2.1 z", "9" * 500 + " {vm}-m 192.0.2.1 s", "600 {vm}-m 192.0.2.1/x s", "600 {vm}-m \xff s"],
)
def test_what_is_no_lease_is_passed_over(vm: str, file: Path, line: str) -> None:
    lines(file, f"600 {vm}-{MAC} 192.0.2.10 {SERVER}")
    with file.open("a", encoding="latin-1") as more:
        more.write(line.format(vm=vm))
    assert learned_of(file, vm) == {(MAC, "192.0.2.10")}


def test_nothing_learned_is_no_address(vm: str, file: Path) -> None:
    assert learned_of(file, vm) == frozenset()


@pytest.fixture
def domain(vm: str) -> Iterator[Any]:
    """Running, with a card on a bridge."""
    connection = libvirt.open("test:///default")
    made = connection.createXML(
        f"<domain type='test'><name>bridged-{vm[:8]}</name><uuid>{vm}</uuid><memory unit='MiB'>64</memory><os>"
        f"<type>hvm</type></os><devices><interface type='bridge'><source bridge='br0'/><mac address='{MAC}'/>"
        "<target dev='vnet7'/></interface></devices></domain>"
    )
    yield made
    made.destroy()


def test_a_running_vm_on_a_bridge_has_the_address_that_its_filter_learned(
    vm: str, file: Path, tmp_path: Path, domain: Any
) -> None:
    assert domain.isActive()
    ledger = Ledger(tmp_path / "ledger", site="s", epoch=1, boot_id="boot-1")
    ledger.claim(f"domain:{vm}", vm)
    domains = Domains(Libvirt("test:///default"), ledger, FakeTiming(), file)
    before = domains.addresses(vm)
    lines(file, f"600 {vm}-{OTHER} 192.0.2.77 {SERVER}")
    assert domains.addresses(vm) == (*before, "192.0.2.77")
