# SPDX-License-Identifier: Apache-2.0
"""VMs that get and lose network cards, for scenes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm

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


CASES = (
    ("attach network", "attach_network", with_vm(start=False), attach),
    ("plug network card in", "attach_network", with_vm(start=True), attach),
    ("detach network", "detach_network", with_vm(start=False, cards=True), detach),
    ("plug network card out", "detach_network", with_vm(start=True, cards=True), detach),
)
"""Name, kind, the world before, what begins it."""
