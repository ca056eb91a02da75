# SPDX-License-Identifier: Apache-2.0
"""What a guest may do on its network, as libvirt reads the definition: any VM, whatever it is called or asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import libvirt
import pytest

from tests.unit.core.test_domain_xml import DEVICES, SPEC, text_of, vm

NETWORKS = ("default", "red", "a" * 63)
TENANTS = ("default", "red", "x-1")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[libvirt.virConnect]:
    """A driver of its own: test:///default is shared in a process, with the domains of other tests."""
    (tmp_path / "node.xml").write_text("<node/>")
    opened = libvirt.open(f"test://{tmp_path}/node.xml")
    yield opened
    opened.close()


@pytest.mark.parametrize("tenant", TENANTS)
@pytest.mark.parametrize("network", NETWORKS)
def test_no_guest_reaches_another_or_takes_its_address(
    connection: libvirt.virConnect, network: str, tenant: str
) -> None:
    """An isolated port passes nothing to other isolated ports: no DHCP answer, no router advertisement, no ARP. What a
    guest may send from is what our DHCP has given to it."""
    wanted = vm(DEVICES["mdev"], replace(SPEC, network=network, tenant=tenant))
    read = ET.fromstring(connection.defineXML(text_of(wanted)).XMLDesc())
    cards = read.findall("devices/interface")
    assert len(cards) == 1
    for card in cards:
        port, guard = card.find("port"), card.find("filterref")
        assert port is not None
        assert port.get("isolated") == "yes"
        assert guard is not None
        assert guard.get("filter") == "clean-traffic"
        assert [(one.get("name"), one.get("value")) for one in guard] == [("CTRL_IP_LEARNING", "dhcp")]
