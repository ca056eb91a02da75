# SPDX-License-Identifier: Apache-2.0
"""VMs that ran on when somebody took their network away: they are told, and plugged in again with the network."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.domains import Domains, domain_key
from orchestrator.agent.libvirt.networks import LibvirtNetworks
from orchestrator.agent.sysfs.bridges import HostBridges
from orchestrator.core.errors import Fatal
from tests.unit.agent.bench import Bench
from tests.unit.agent.fake_timing import FakeTiming

NETWORK, SUBNET, BRIDGE = "default.blue", "10.88.0.0/24", "virbr9"


class Running:
    """A domain of libvirt's test driver, whose XML has what libvirt writes for QEMU alone: interfaces in bridges."""

    def __init__(self, domain: Any, interfaces: str) -> None:
        self._domain, self._interfaces = domain, interfaces

    def __getattr__(self, name: str) -> Any:
        return getattr(self._domain, name)

    def XMLDesc(self, *flags: int) -> str:  # noqa: N802 - libvirt's name
        return re.sub("</devices>", f"{self._interfaces}</devices>", self._domain.XMLDesc(*flags))


class Network:
    """With the bridge that libvirt makes for it on a host."""

    def __init__(self, network: Any) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def XMLDesc(self) -> str:  # noqa: N802 - libvirt's name
        return re.sub("<bridge (?!name)", f"<bridge name='{BRIDGE}' ", self._network.XMLDesc())


class Connection:
    def __init__(self, connection: Any, interfaces: dict[str, str]) -> None:
        self._connection, self._interfaces = connection, interfaces

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def networkLookupByName(self, name: str) -> Network:  # noqa: N802 - libvirt's name
        return Network(self._connection.networkLookupByName(name))

    def networkDefineXML(self, xml: str) -> Network:  # noqa: N802 - libvirt's name
        return Network(self._connection.networkDefineXML(xml))

    def listAllDomains(self) -> list[Running]:  # noqa: N802 - libvirt's name
        found = self._connection.listAllDomains()
        return [Running(one, self._interfaces.get(one.UUIDString(), "")) for one in found]


class Qemu(Libvirt):
    interfaces: dict[str, str]

    def call(self, function: Callable[[Any], Any], **how: Any) -> Any:
        return super().call(lambda connection: function(Connection(connection, self.interfaces)), **how)


class Host:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.net = bench.host.paths.root / "sys/class/net"
        self.libvirt = Qemu("test:///default")
        self.libvirt.interfaces = {}
        bridges = HostBridges(bench.host.paths)
        self.domains = Domains(self.libvirt, bench.ledger, FakeTiming(), is_plugged=bridges.is_plugged)
        self.networks = LibvirtNetworks(self.libvirt, bench.ledger, bridges, self.plug)
        self.steps: list[tuple[str, str, bool]] = []
        self.refuses = False

    def plug(self, interface: str, bridge: str, *, isolated: bool) -> str | None:
        if self.refuses:
            return "RTNETLINK answers: Operation not permitted"
        self.steps.append((interface, bridge, isolated))
        (self.net / interface / "master").symlink_to(self.net / bridge)
        return None

    def has_vm(self, *, ours: bool, isolated: bool = False, plugged: bool = False) -> str:
        self.bench.define()
        vm, interface = self.bench.vm, f"vnet{len(self.libvirt.interfaces)}"
        port = "<port isolated='yes'/>" if isolated else ""
        self.libvirt.interfaces[vm] = (
            f"<interface type='network'><source network='{NETWORK}' bridge='virbr7'/>"
            f"<target dev='{interface}'/>{port}</interface>"
        )
        (self.net / interface).mkdir(parents=True)
        if plugged:
            (self.net / interface / "master").symlink_to(self.net / "virbr7")
        if ours:
            self.bench.ledger.claim(domain_key(vm), vm)
        return vm

    def cut_off(self) -> dict[str, tuple[str, ...]]:
        return {one.uuid: one.cut_off for one in self.domains.snapshots(print) if one.cut_off}


@pytest.fixture
def host(furnished: Bench) -> Host:
    return Host(furnished)


@pytest.mark.parametrize("isolated", [False, True])
def test_a_vm_that_ran_on_is_told_and_plugged_in_when_its_network_is_made_again(host: Host, isolated: bool) -> None:
    vm = host.has_vm(ours=True, isolated=isolated)
    assert host.cut_off() == {vm: (NETWORK,)}
    assert host.networks.ensure(NETWORK, SUBNET).changed
    assert host.steps == [("vnet0", BRIDGE, isolated)]
    assert host.cut_off() == {}
    assert not host.networks.ensure(NETWORK, SUBNET).changed


@pytest.mark.parametrize(("ours", "plugged"), [(False, False), (True, True)])
def test_what_is_plugged_in_or_somebody_elses_is_left_alone(host: Host, ours: bool, plugged: bool) -> None:
    host.has_vm(ours=ours, plugged=plugged)
    host.networks.ensure(NETWORK, SUBNET)
    assert host.steps == []


def test_what_the_kernel_has_against_it_is_told(host: Host) -> None:
    host.has_vm(ours=True)
    host.refuses = True
    with pytest.raises(Fatal) as refused:
        host.networks.ensure(NETWORK, SUBNET)
    assert (refused.value.code, refused.value.details) == (
        "network.not_plugged", "RTNETLINK answers: Operation not permitted",
    )  # fmt: skip
