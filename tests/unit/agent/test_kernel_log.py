# SPDX-License-Identifier: Apache-2.0
"""What the driver wrote in the kernel log, on a file that grows as the log does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agent.kernel_log import KernelLog
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.sysfs import binding
from orchestrator.core.gpu.health import MAX_TEXT
from tests.unit.agent.fake_sysfs import FakeSysfs

GPU, OTHER = "0000:41:00.0", "0000:c1:00.0"
DOUBLE_BIT = "NVRM: Xid (PCI:0000:41:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error"
OFF_THE_BUS = "NVRM: Xid (PCI:0000:41:00): 79, pid=3177, name=vgpu, GPU has fallen off the bus."
REBOOT = "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
WELL = "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


class Bench:
    def __init__(self, root: Path) -> None:
        self.host = FakeSysfs(root)
        self.file = self.host.paths.kernel_log
        self.file.parent.mkdir()
        self.sequence = 0
        self.says("Linux version 6.12.0", " SUBSYSTEM=pci", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.02")
        self.start()

    def start(self) -> None:
        self.ledger = Ledger(self.host.paths.ledger, site="s", epoch=1, boot_id="boot-1")
        self.log = KernelLog(self.host.paths, self.ledger)

    def agent_restarts(self) -> None:
        self.ledger.close()
        self.start()

    def boots(self) -> None:
        self.ledger.close()
        self.host.text(self.host.paths.proc / "sys/kernel/random/boot_id", "boot-2")
        self.file.write_bytes(b"")
        self.sequence = 0
        self.start()

    def says(self, *texts: str, at_s: float = 1.0) -> None:
        with self.file.open("ab") as file:
            for text in texts:
                self.sequence += 1
                head = "" if text.startswith(" ") else f"3,{self.sequence},{int(at_s * 1e6)},-;"
                file.write(f"{head}{text}\n".encode(errors="surrogateescape"))

    def names(self, gpu: str = GPU) -> list[str]:
        return [one.name for one in self.log.signals().get(gpu, ())]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.ledger.close()


@pytest.mark.fault("F82")
def test_an_xid_is_told_with_its_gpu_its_time_and_the_rest_of_its_line(bench: Bench) -> None:
    assert bench.log.signals() == {}
    bench.says(OFF_THE_BUS, REBOOT, at_s=30.0)
    (lost, recovery), booted = bench.log.signals()[GPU], time.time() - time.monotonic()
    assert (lost.name, lost.text) == ("xid-79", "pid=3177, name=vgpu, GPU has fallen off the bus.")
    assert lost.at == pytest.approx(booted + 30, abs=3)
    assert recovery.name == "xid-154"
    assert recovery.text.endswith("(Node Reboot Required)")
    assert set(bench.log.signals()) == {GPU}


@pytest.mark.parametrize(
    ("line", "gpu", "name"),
    [
        ("NVRM: Xid (PCI:0000:C1:00 GPU-I:05): 94, pid=7194, name=python, Contained: CE User Channel", OTHER, "xid-94"),
        ("NVRM: Xid (PCI:00000000:41:00.0): 119, pid=5220, Timeout waiting for RPC from GSP!", GPU, "xid-119"),
        ("NVRM: Xid (0000:41:00): 31, Ch 00000010", GPU, "xid-31"),
        ("NVRM: Xid (PCI:0000:41:00): 154 (", GPU, "xid-154"),
    ],
)
def test_every_form_of_the_line_is_read(bench: Bench, line: str, gpu: str, name: str) -> None:
    bench.says(line)
    assert bench.names(gpu) == [name]


@pytest.mark.parametrize(
    "line",
    [
        f"audit: {OFF_THE_BUS}",
        "NVRM: Xid (PCI:0000:41:00): , no number",
        "NVRM: Xid (PCI:../../etc): 79, no place",
        "NVRM: Xid (PCI:0000:41:00): 79999999999999, no Xid",
        "NVRM: Xid (PCI:0000:41:00",
        "\udcff\udcfe",
    ],
)
def test_what_only_looks_like_one_is_none(bench: Bench, line: str) -> None:
    bench.says(line)
    assert bench.log.signals() == {}


def test_hostile_text_is_data_and_bounded(bench: Bench) -> None:
    bench.says(
        "NVRM: Xid (PCI:0000:41:00): 31, name=\x1b[2J\x07\udcff'; DROP TABLE owners; --" + "x" * 3000, OFF_THE_BUS
    )
    bench.says(*(f"NVRM: Xid (PCI:{number:04x}:41:00): 79, none of ours" for number in range(1, 500)))
    first, _ = bench.log.signals()[GPU]
    assert len(first.text) <= MAX_TEXT
    assert first.text.isprintable()
    assert len(bench.log.signals()) <= 64
    bench.agent_restarts()
    assert bench.names() == ["xid-31", "xid-79"]


def test_a_storm_is_one_signal_hides_no_other_and_is_written_down_once(bench: Bench) -> None:
    line = "NVRM: Xid (PCI:0000:41:00): 45, pid=1, name=app, Ch 00000008"
    bench.says(DOUBLE_BIT, *[line] * 50_000)
    first, written = bench.log.signals(), (bench.host.paths.ledger / "ledger.sqlite").stat().st_mtime_ns
    assert [one.name for one in first[GPU]] == ["xid-48", "xid-45"]
    bench.says(*[line] * 50_000, at_s=2.0)
    began = time.process_time()
    assert bench.log.signals() == first
    assert time.process_time() - began < 5
    assert (bench.host.paths.ledger / "ledger.sqlite").stat().st_mtime_ns == written
    bench.says(line, at_s=7200.0)
    assert bench.log.signals()[GPU][1].at > first[GPU][1].at + 3600


def test_what_was_read_is_known_after_the_log_forgot_it_and_after_the_agent_was_restarted(bench: Bench) -> None:
    bench.says(DOUBLE_BIT)
    assert bench.names() == ["xid-48"]
    bench.file.write_bytes(b"")
    bench.agent_restarts()
    assert bench.names() == ["xid-48"]
    bench.boots()
    assert bench.log.signals() == {}


def test_what_a_newer_agent_wrote_down_otherwise_is_read_from_the_log_again(bench: Bench) -> None:
    bench.says(DOUBLE_BIT)
    assert bench.names() == ["xid-48"]
    owner = bench.ledger.owner("kernel log")
    assert owner is not None
    bench.ledger.claim("kernel log", "", detail=owner.detail.replace('"text"', '"words"'))
    bench.agent_restarts()
    assert bench.names() == ["xid-48"]


@pytest.mark.parametrize(
    "over", [WELL, f"vgpuctl: GPU {GPU} was reset", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module"]
)
def test_a_reset_and_a_driver_that_was_loaded_anew_end_what_was_before(bench: Bench, over: str) -> None:
    bench.says(DOUBLE_BIT, "NVRM: Xid (PCI:0000:c1:00): 95, uncontained")
    assert bench.names() == ["xid-48"]
    bench.says(over)
    assert bench.names() == []
    assert bench.names(OTHER) == ([] if "loading" in over else ["xid-95"])
    bench.agent_restarts()
    assert bench.names() == []
    bench.says(DOUBLE_BIT)
    assert bench.names() == ["xid-48"]


def test_the_newest_recovery_action_stands_behind_what_it_is_about(bench: Bench) -> None:
    bench.says(REBOOT.replace("0x2 (Node Reboot Required)", "0x1 (GPU Reset Required)"), OFF_THE_BUS, REBOOT)
    assert bench.names() == ["xid-79", "xid-154"]
    assert bench.log.signals()[GPU][1].text.endswith("(Node Reboot Required)")


def test_a_host_whose_log_cannot_be_read_tells_nothing(bench: Bench) -> None:
    bench.file.unlink()
    bench.agent_restarts()
    assert bench.log.signals() == {}


@pytest.mark.fault("F78")
def test_the_reset_of_a_gpu_that_is_given_back_is_noted_in_the_log(bench: Bench) -> None:
    bench.host.add_t4(GPU)
    bench.says(DOUBLE_BIT)
    assert bench.names() == ["xid-48"]
    before = bench.file.read_text()
    binding.reset(bench.host.paths, bench.host.write, GPU)
    noted = bench.file.read_text().removeprefix(before)
    assert noted == f"vgpuctl: GPU {GPU} was reset"
    bench.file.write_text(before)
    bench.agent_restarts()
    bench.says(noted)
    assert bench.names() == []


def test_a_fatal_error_of_a_virtual_function_is_told_of_that_one_and_ends_with_its_gpus_reset(
    bench: Bench,
) -> None:
    bench.host.add_l40s(GPU)
    line = "vfio-pci {}: AER: PCIe Bus Error: severity=Uncorrectable ({}), type=Transaction Layer, (Receiver ID)"
    bench.says(*(line.format(function, "Fatal") for function in (f"{GPU[:-1]}1", f"{GPU[:-1]}2", "0000:99:00.1")))
    bench.says(line.format(f"{GPU[:-1]}1", "Non-Fatal"))
    bench.agent_restarts()
    signals = bench.log.signals()
    assert set(signals) == {GPU}
    assert [(one.name, one.function) for one in signals[GPU]] == [
        ("aer-fatal", f"{GPU[:-1]}1"), ("aer-fatal", f"{GPU[:-1]}2"),
    ]  # fmt: skip
    bench.says(f"vgpuctl: GPU {GPU} was reset")
    assert bench.names() == []
