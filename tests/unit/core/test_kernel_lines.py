# SPDX-License-Identifier: Apache-2.0
"""Lines of the kernel log in every form that drivers and kernels have written them in."""

from __future__ import annotations

import pytest

from orchestrator.core.gpu.kernel_lines import KernelLine, LoggedSignals, parse_line

GPU, SWITCH = "0000:41:00.0", "0000:c3:00.0"
XID = "NVRM: Xid (PCI:0000:41:00): 31, pid={}, name=vgpu, Ch 00000010"


@pytest.mark.parametrize(
    ("text", "place", "name"),
    [
        ("NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off", GPU, "xid-79"),
        ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 RX Short", SWITCH, "sxid-nonfatal"),
        ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 11001, Fatal, ingress invalid command", SWITCH, "sxid-fatal"),
        ("nvidia 0000:41:00.0: AER: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (", GPU, "aer-corrected"),
        ("nvidia 0000:41:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer", GPU, "aer-corrected"),
        ("vfio-pci 0000:41:00.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=T", GPU, "aer-nonfatal"),
        ("nvidia 0000:41:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inacc", GPU, "aer-fatal"),
        ("vfio-pci 0000:41:00.4: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), t", "0000:41:00.4", "aer-fatal"),
    ],
)
def test_each_form_is_read(text: str, place: str, name: str) -> None:
    line = parse_line(text)
    assert line is not None
    assert line.signal is not None
    assert (line.place, line.signal.name) == (place, name)


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20009, Perhaps, Link 1",
        "pcieport 0000:40:01.0: AER: Corrected error message received from 0000:41:00.0",
        "pcieport 0000:40:01.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
        "nvidia 0000:41:00.0: AER: PCIe Bus Error: severity=Bad, type=Data Link Layer",
        "vfio-pci 0000:41:00.4: AER: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=T, of a guest's",
        "audit: NVRM: Xid (PCI:0000:41:00): 79, of somebody else",
    ],
)
def test_what_says_nothing_of_a_gpu_is_none(text: str) -> None:
    assert parse_line(text) is None


def taken(logged: LoggedSignals, text: str, at: int) -> bool:
    line = parse_line(text, at)
    assert isinstance(line, KernelLine)
    return logged.take(line)


def test_programs_that_met_an_error_are_counted_up_to_three_and_anew_after_a_day() -> None:
    logged = LoggedSignals()
    assert taken(logged, XID.format(1), 1000)
    assert not taken(logged, XID.format(1), 1001)
    assert [taken(logged, XID.format(pid), 1002) for pid in (2, 3, 4)] == [True, True, False]
    assert logged.by_place[GPU]["xid-31"].pids == (1, 2, 3)
    assert taken(logged, XID.format(9), 1000 + 90_000)
    assert logged.by_place[GPU]["xid-31"].pids == (9,)


def test_a_line_after_the_hosts_clock_was_put_back_is_a_new_one() -> None:
    logged = LoggedSignals()
    taken(logged, XID.format(1), 10_000_000)
    assert not taken(logged, XID.format(1), 9_999_990), "clocks are set by seconds all the time"
    assert taken(logged, XID.format(1), 9_000_000)
    assert logged.by_place[GPU]["xid-31"].at == 9_000_000


def test_an_error_of_a_switch_ends_when_the_driver_is_loaded_anew_and_not_with_a_gpus_reset() -> None:
    logged = LoggedSignals()
    taken(logged, "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 11001, Fatal, ingress", 1)
    taken(logged, f"vgpuctl: GPU {GPU} was reset", 2)
    assert set(logged.by_place) == {SWITCH}
    assert taken(logged, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.02", 3)
    assert not logged.by_place
