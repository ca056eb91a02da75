# SPDX-License-Identifier: Apache-2.0
"""Hardware addresses of cards on networks of kind ovn, where no two may be alike."""

from __future__ import annotations

from uuid import NAMESPACE_OID, uuid5

import pytest

from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.services.vms import ports
from tests.contract.test_ovn_networks import SMALL, _create, _refused, northbound, plane
from tests.fakes.control_plane import ControlPlane

__all__ = ("northbound", "plane")
ALIKE = (2064, 2347)
"""Which of the ids here have one hardware address on their first cards."""
_BEFORE = 2
"""What else gets an id before a VM does, and itself."""


def test_a_vm_whose_hardware_address_another_has_gets_another_id(plane: ControlPlane) -> None:
    plane.services.networks.add_overlay("blue", SMALL, "default")
    first, second = ALIKE
    plane.ids.count = first - _BEFORE
    train = _create(plane)
    plane.ids.count = second - _BEFORE
    other = _create(plane, "other")
    assert (train.id, mac_address(train.id)) == (_numbered(first), mac_address(_numbered(second)))
    assert mac_address(other.id) != mac_address(train.id)


def test_a_card_with_the_hardware_address_of_another_is_not_attached(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.services.networks.add_overlay("blue", SMALL, "default")
    other = _create(plane, "other")
    before = _create(plane, network="default")
    monkeypatch.setattr(ports, "mac_address", lambda _vm, _card: mac_address(other.id))
    _refused("network.mac_taken", lambda: plane.services.network_cards.attach("default", "train", "blue"))
    assert plane.services.vms.get("default", "train") == before
    monkeypatch.undo()
    assert plane.services.network_cards.attach("default", "train", "blue").operation is not None


def _numbered(number: int) -> str:
    return str(uuid5(NAMESPACE_OID, str(number)))
