# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.vms.network import MAX_CARDS
from tests.fakes.control_plane import ControlPlane, create_vm, plane_with
from tests.operations.cards_of_vms import NETWORK, with_vm
from tests.operations.test_volumes import done, refused


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path) as made:
        with_vm(start=True)(made)
        yield made


def networks(plane: ControlPlane) -> tuple[str, ...]:
    return plane.services.vms.get("default", "train").spec.networks


def test_a_running_vm_gets_a_card_and_gives_it_back(plane: ControlPlane) -> None:
    cards, before = plane.services.network_cards, networks(plane)
    done(plane, cards.attach("default", "train", NETWORK))
    assert networks(plane) == (*before, f"default.{NETWORK}")
    assert cards.attach("default", "train", NETWORK).existing
    done(plane, cards.detach("default", "train", NETWORK))
    assert networks(plane) == before
    assert cards.detach("default", "train", NETWORK).existing
    assert plane.services.vms.get("default", "train").state == "running"


def test_the_last_card_goes_first_and_one_stays(plane: ControlPlane) -> None:
    cards = plane.services.network_cards
    refused("network.only_card", Conflict, lambda: cards.detach("default", "train", "default"))
    done(plane, cards.attach("default", "train", NETWORK))
    error = refused("network.not_last", Conflict, lambda: cards.detach("default", "train", "default"))
    assert f"network detach {NETWORK} train" in str(error.hint)


def test_no_vm_has_more_cards_than_a_new_one_may(plane: ControlPlane) -> None:
    cards = plane.services.network_cards
    refused("network.unknown", NotFound, lambda: cards.attach("default", "train", "nowhere"))
    for number in range(MAX_CARDS - 1):
        plane.services.networks.add(f"more-{number}", None, "default")
        done(plane, cards.attach("default", "train", f"more-{number}"))
    refused("network.too_many_cards", InvalidInput, lambda: cards.attach("default", "train", NETWORK))


def test_the_tenants_default_network_is_made_for_a_card_too(plane: ControlPlane) -> None:
    plane.services.tenancy.tenants.create("research")
    plane.services.networks.add("own", None, "research")
    plane.services.vms.create(replace(create_vm("first"), tenant="research", network="own"))
    plane.engine.drain()
    done(plane, plane.services.network_cards.attach("research", "first", "default"))
    assert plane.services.vms.get("research", "first").spec.networks == ("research.own", "research.default")
