# SPDX-License-Identifier: Apache-2.0
"""What a GPU's signals mean: the table, and what Xid 154 says instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.gpu.health import GpuSignal, closing_fault, fabric_fault, faults_of, is_well_again, recovery_of

CHANGED = "GPU recovery action changed from 0x0 (None) to "


def signal(xid: int, text: str = "") -> GpuSignal:
    return GpuSignal(name=f"xid-{xid}", text=text, at=1)


def worst(*signals: GpuSignal) -> tuple[str, str] | None:
    faults = faults_of(signals, shipped().signal_meanings)
    return (faults[0].scope, faults[0].remedy) if faults else None


@pytest.mark.parametrize(
    ("xid", "meant"),
    [
        (48, ("gpu", "drain_and_reset")),
        (63, ("gpu", "reset_when_free")),
        (64, ("gpu", "drain_and_reset")),
        (74, ("fabric", "drain_and_reset")),
        (79, ("gpu", "reboot_host")),
        (94, ("vm", "restart_vm")),
        (95, ("gpu", "drain_and_reset")),
        (119, ("gpu", "reload_driver")),
        (120, ("gpu", "reload_driver")),
        (13, None),
        (31, None),
        (43, None),
        (45, None),
        (9999, ("gpu", "support")),
    ],
)
def test_each_xid_means_what_the_table_says(xid: int, meant: tuple[str, str] | None) -> None:
    assert worst(signal(xid)) == meant


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("0x1 (GPU Reset Required)", ("gpu", "drain_and_reset")),
        ("0x2 (Node Reboot Required)", ("gpu", "reboot_host")),
        ("0x2 (OS Reboot)", ("gpu", "reboot_host")),
        ("0x3 (Drain P2P)", ("fabric", "drain_and_reset")),
        ("0x4 (Drain and Reset)", ("gpu", "drain_and_reset")),
        ("Node Reboot Required", ("gpu", "reboot_host")),
        ("0x7 (System Reboot)", ("gpu", "reboot_host")),
        ("0x1 (Node Reboot Required)", ("gpu", "reboot_host")),
    ],
)
def test_xid_154_says_what_helps_and_overrides_those_before_it(said: str, meant: tuple[str, str]) -> None:
    recovery = signal(154, f"pid='<unknown>', name=<unknown>, {CHANGED}{said}")
    for before in (79, 95, 63):
        assert worst(signal(before), recovery) == meant
    assert worst(signal(95), recovery, signal(79)) == ("gpu", "reboot_host")


@pytest.mark.fault("F86")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "(",
        "154 (",
        f"{CHANGED}0x",
        f"{CHANGED}0x63 (Dance)",
        f"{CHANGED}(",
        "\0\x1b[2J",
        "x" * 200,
        "to 0x0 (None)",
    ],
)
def test_an_xid_154_that_cannot_be_read_is_a_matter_for_support_and_overrides_nothing(text: str) -> None:
    assert recovery_of(text) is None
    assert worst(signal(154, text)) == ("gpu", "support")
    assert closing_fault(faults_of([signal(154, text)], shipped().signal_meanings)) is None
    assert worst(signal(79), signal(154, text)) == ("gpu", "reboot_host")
    assert not is_well_again(signal(154, text))


@given(st.text(max_size=300), st.text(min_size=1, max_size=20))
def test_no_text_and_no_name_breaks_anything(text: str, name: str) -> None:
    signals = [GpuSignal(name="xid-154", text=text), GpuSignal(name=name, text=text)]
    for fault in faults_of(signals, shipped().signal_meanings):
        assert fault.signal.words


def test_where_all_is_well_again_nothing_is_wrong() -> None:
    recovery = signal(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    assert is_well_again(recovery)
    assert worst(signal(95), recovery) is None


def test_the_fabric_is_judged_by_itself() -> None:
    faults = faults_of([GpuSignal(name="fabric-route_unhealthy")], shipped().signal_meanings)
    assert closing_fault(faults) is None
    fault = fabric_fault(faults)
    assert fault is not None
    assert fault.signal.words == "a route of the fabric is unhealthy"
