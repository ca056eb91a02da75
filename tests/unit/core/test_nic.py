# SPDX-License-Identifier: Apache-2.0
"""Which network cards are near a GPU, and which addresses name some."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.hosts.nic import HostNic, NicFunction, check_given, near, nic_mac, parse_nics

PORT, OTHER_PORT, SWITCH = "0000:00:01.0", "0000:00:02.0", "0000:01:00.0"


def nic(address: str, *bridges: str, numa: int | None = None) -> HostNic:
    functions = (NicFunction(address=f"{address[:-1]}1"),)
    return HostNic(
        address=address, vendor="15b3", device="101d", numa_node=numa, bridges=bridges, interface=None,
        functions=functions,
    )  # fmt: skip


FAR = nic("0000:05:00.0", OTHER_PORT, numa=1)
BESIDE = nic("0000:04:00.0", PORT, SWITCH, "0000:02:01.0", numa=1)
HIGHER = nic("0000:06:00.0", PORT, "0000:07:00.0", numa=1)
SAME_NODE = nic("0000:08:00.0", OTHER_PORT, numa=0)
GPU = (PORT, SWITCH, "0000:02:00.0")


def test_a_card_under_the_gpus_own_switch_is_nearest_and_one_of_its_node_counts_where_none_is_under_it() -> None:
    assert near(GPU, 0, [FAR, HIGHER, BESIDE, SAME_NODE]) == ((BESIDE.address, HIGHER.address), True)
    assert near(GPU, 0, [FAR, SAME_NODE]) == ((SAME_NODE.address,), False)
    assert near(GPU, 0, [FAR]) == ((), False)
    assert near((), None, [nic("0000:09:00.0")]) == (("0000:09:00.0",), False)


def test_addresses_are_read_each_once_and_what_names_no_card_is_refused() -> None:
    assert parse_nics("") == ()
    assert parse_nics("0000:05:00.0, 0000:04:00.0,0000:05:00.0") == (FAR.address, BESIDE.address)
    for text in (" ", "eth0", "0000:05:00.0,", "5:0.0"):
        with pytest.raises(InvalidInput) as refused:
            parse_nics(text)
        assert refused.value.code == "nic.invalid"


def test_only_cards_that_a_host_tells_of_can_be_given() -> None:
    check_given([], [], "h")
    check_given([FAR, BESIDE], [FAR.address], "h")
    with pytest.raises(Conflict) as silent:
        check_given([], [FAR.address], "h")
    assert silent.value.code == "nic.none_told"
    with pytest.raises(InvalidInput) as unknown:
        check_given([BESIDE], [FAR.address], "h")
    assert (unknown.value.code, unknown.value.hint) == ("nic.unknown", f"it has {BESIDE.address}")


def test_a_vm_keeps_its_hardware_address_and_no_two_have_one() -> None:
    assert nic_mac("a") == nic_mac("a") != nic_mac("b")
    assert int(nic_mac("a")[:2], 16) & 3 == 2  # locally administered, of one station
