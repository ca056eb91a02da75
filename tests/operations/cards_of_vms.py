# SPDX-License-Identifier: Apache-2.0
"""VMs that get and lose network cards, for scenes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.services.vms import converting
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm

NETWORK = "inner"


def with_vm(*, start: bool, cards: bool = False) -> Callable[[ControlPlane], None]:
    """``cards``: on the tenant's other network too."""

    def prepare(plane: ControlPlane) -> None:
        plane.add_host(T4_HOST)
        plane.services.networks.add(NETWORK, None, "default")
        networks = ("default", NETWORK) if cards else ("default",)
        wanted = replace(create_vm(start=start), network=networks[0], more_networks=networks[1:])
        plane.services.vms.create(wanted)
        plane.engine.drain()

    return prepare


def attach(plane: ControlPlane) -> str | None:
    return plane.services.network_cards.attach("default", "train", NETWORK).operation


def detach(plane: ControlPlane) -> str | None:
    return plane.services.network_cards.detach("default", "train", NETWORK).operation


def with_stopped_vms(plane: ControlPlane) -> None:
    """On both hosts, which are in OVN."""
    for host in (T4_HOST, L40S_HOST):
        plane.machine(host).bridges = (Bridge(name="br-int", kind="openvswitch"),)
        plane.add_host(host)
    plane.services.networks.add(NETWORK, "10.90.1.0/24", "default")
    for name, profile in (("train", "GRID T4-2Q"), ("infer", "NVIDIA L40S-12Q")):
        plane.services.vms.create(replace(create_vm(name, profile=profile, start=False), network=NETWORK))
    plane.engine.drain()


def convert(plane: ControlPlane) -> str | None:
    """At a site that has OVN, which the operation itself does not ask."""
    cards = plane.services.network_cards
    in_ovn = replace(cards.networks.in_ovn, northbound=OvnNorthbound(endpoints=(), trust=lambda: None))
    return converting.convert(
        replace(cards, networks=replace(cards.networks, in_ovn=in_ovn)), NETWORK, "default"
    ).operation


CASES = (
    ("convert network", "convert_network", with_stopped_vms, convert),
    ("attach network", "attach_network", with_vm(start=False), attach),
    ("plug network card in", "attach_network", with_vm(start=True), attach),
    ("detach network", "detach_network", with_vm(start=False, cards=True), detach),
    ("plug network card out", "detach_network", with_vm(start=True, cards=True), detach),
)
"""Name, kind, the world before, what begins it."""
