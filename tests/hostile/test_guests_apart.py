# SPDX-License-Identifier: Apache-2.0
"""What a guest may do on its network, as libvirt reads the definition: any VM, whatever it is called or asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import libvirt
import pytest

from orchestrator.core.domain_xml import domain_xml
from orchestrator.core.domain_xml.interface import GUARD
from orchestrator.core.errors import InvalidInput
from orchestrator.core.vms.network import own_name
from orchestrator.core.vms.vm import VmSpec
from tests.unit.core.test_domain_xml import DEVICES, SPEC, text_of, vm

NETWORKS = ("default", "red", "a" * 63)
TENANTS = ("default", "red", "x-1")
SERVER = "10.88.0.1"


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
    card = card_of(connection, replace(SPEC, network=network, tenant=tenant))
    port = card.find("port")
    assert port is not None
    assert port.get("isolated") == "yes"
    assert_guarded(card)


@pytest.mark.parametrize("tenant", TENANTS)
def test_on_a_tenants_own_network_its_vms_reach_each_other_and_spoof_nothing(
    connection: libvirt.virConnect, tenant: str
) -> None:
    card = card_of(connection, replace(SPEC, network=own_name(tenant, "default"), tenant=tenant))
    assert card.find("port") is None
    assert_guarded(card)


@pytest.mark.parametrize("network", ["red.default", "x.red.default", "red.", ".default", "red.default.x"])
def test_no_vm_is_defined_on_a_network_of_another_tenant(network: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        text_of(vm(DEVICES["mdev"], replace(SPEC, network=network, tenant="x")))
    assert refused.value.code == "vm.domain_invalid"


def card_of(connection: libvirt.virConnect, spec: VmSpec) -> ET.Element:
    asked = vm(DEVICES["mdev"], spec)
    text = domain_xml(asked.id, asked.domain, dhcp_servers={spec.network: (SERVER,)})
    read = ET.fromstring(connection.defineXML(text).XMLDesc())
    (card,) = read.findall("devices/interface")
    return card


def assert_guarded(card: ET.Element) -> None:
    guard = card.find("filterref")
    assert guard is not None
    assert guard.get("filter") == GUARD
    learning = [("CTRL_IP_LEARNING", "dhcp"), ("DHCPSERVER", SERVER)]
    assert [(one.get("name"), one.get("value")) for one in guard] == learning
