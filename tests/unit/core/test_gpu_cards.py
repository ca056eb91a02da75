# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.core.actions.gpu_cards import GpuCard, moved_device, moved_function, moves, strangers
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.fabric import FabricPlace

A, B, C = "0000:3b:00.0", "0000:5e:00.0", "0001:af:00.0"


def _card(address: str, uuid: str) -> GpuCard:
    return GpuCard(address=address, uuid=uuid)


def test_cards_are_known_by_their_uuid_wherever_they_are() -> None:
    accepted = [_card(A, "x"), _card(B, "y")]
    assert moves(accepted, accepted) == {}
    assert moves(accepted, [_card(A, "y"), _card(B, "x")]) == {A: B, B: A}
    assert moves(accepted, [_card(C, "x"), _card(A, "new")]) == {A: C}
    assert moves(accepted, []) == {}, "one that is not seen has moved nowhere"


def test_a_stranger_is_at_the_address_of_a_card_that_is_seen_nowhere() -> None:
    accepted = [_card(A, "x"), _card(B, "y")]
    assert strangers(accepted, [_card(A, "new"), _card(B, "y")]) == {A: (_card(A, "x"), _card(A, "new"))}
    assert strangers(accepted, [_card(A, "y"), _card(B, "x")]) == {}
    assert strangers(accepted, [_card(A, "new"), _card(C, "x")]) == {}


@pytest.mark.parametrize(
    ("function", "gpu", "there", "expected"),
    [
        (A, A, C, C),
        ("0000:3b:00.4", A, B, "0000:5e:00.4"),
        ("0000:3b:04.3", A, C, "0001:af:04.3"),
        ("0000:3c:00.2", A, B, "0000:5f:00.2"),
        ("0000:02:00.1", "0000:02:00.0", "0000:02:01.0", "0000:02:01.1"),
    ],
)
def test_a_function_keeps_its_distance_from_its_card(function: str, gpu: str, there: str, expected: str) -> None:
    assert moved_function(function, gpu, there) == expected


def test_a_device_of_each_kind_goes_with_its_card() -> None:
    mdev = Device(kind="mdev", gpu=A, parent=A, type_name="GRID T4-2Q", name="0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11")
    assert moved_device(mdev, {A: C}) == Device(kind="mdev", gpu=C, parent=C, type_name=mdev.type_name, name=mdev.name)
    function = Device(
        kind="vendor_vfio", gpu=A, parent="0000:3b:00.4", type_name="NVIDIA L40S-12Q", name="0000:3b:00.4"
    )
    there = moved_device(function, {A: B})
    assert (there.gpu, there.parent, there.name) == (B, "0000:5e:00.4", "0000:5e:00.4")
    assert moved_device(function, {B: A}) == function
    place = FabricPlace(3, (1, 3), (A, B))
    whole = Device(kind="passthrough", gpu=B, parent=B, type_name="NVIDIA H100XM", name=B, fabric=place)
    there = moved_device(whole, {A: B, B: C})
    assert (there.gpu, there.name, there.fabric) == (C, C, FabricPlace(3, (1, 3), (B, C)))
