# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab import requirements
from lab.cli import main
from lab.errors import LabError
from lab.fleet import Fleet
from lab.image.base import Base
from lab.machine.accelerator import clock, has_virtualisation
from lab.machine.fault import fault_command
from lab.machine.identity import identity, lan_address
from lab.machine.instance import Instance, launch, load
from lab.machine.keys import key_pair, known_host_line, sha256_fingerprint
from lab.machine.processes import Process, identify
from lab.machine.qemu import Machine, arguments, mac
from lab.places import places
from lab.scenario import Gpu, Host, Nic


def host(vfs: int = 16) -> Host:
    gpu = Gpu("L40S", "vendor_vfio" if vfs else "mdev_pf", vfs, "GPU-1", 0, 1)
    return Host("one", "550.1", (gpu, gpu))


def words(kind: str, vfs: int = 16) -> list[str]:
    return arguments(Machine(host(vfs), Path("/h"), Path("/k"), kind, 4022, 4023))


def test_every_gpu_stands_behind_a_root_port_of_its_own() -> None:
    devices = [word for word in words("tcg") if word.startswith("nvme,")]
    assert [device.split(",")[2] for device in devices] == ["bus=port1", "bus=port2"]


@pytest.mark.parametrize("vfs", [1, 16, 32, 48])
def test_the_controller_has_queues_and_vectors_for_all_its_vfs(vfs: int) -> None:
    device = next(word for word in words("tcg", vfs) if word.startswith("nvme,"))
    options = dict(part.split("=") for part in device.split(",")[1:])
    assert int(options["sriov_max_vfs"]) == vfs
    assert int(options["max_ioqpairs"]) > int(options["sriov_vq_flexible"])
    assert int(options["msix_qsize"]) > int(options["sriov_vi_flexible"])


def test_gpus_of_one_switch_are_functions_of_one_port_device() -> None:
    gpus = tuple(Gpu("L40S", "vendor_vfio", 1, "GPU-1", 0, 1, switch) for switch in (1, 0, 1, 2))
    line = arguments(Machine(Host("one", "550.1", gpus), Path("/h"), Path("/k"), "tcg", 4022, 4023))
    ports = [word for word in line if word.startswith("xio3130-downstream")]
    assert [port.rpartition(",bus=")[2] for port in ports] == [
        "switch1,addr=0x0.0x0,multifunction=on", "switch1,addr=0x0.0x1,multifunction=on",
        "switch2,addr=0x0.0x0,multifunction=on",
    ]  # fmt: skip
    assert sum(word.startswith("x3130-upstream") for word in line) == 2


def test_a_network_card_and_the_gpu_that_it_is_beside_are_under_one_switch_in_groups_of_their_own() -> None:
    gpus = tuple(Gpu("L40S", "vendor_vfio", 1, "GPU-1", 0, 1) for _ in range(2))
    host = Host("one", "550.1", gpus, nics=(Nic(beside=2), Nic()))
    line = arguments(Machine(host, Path("/h"), Path("/k"), "tcg", 4022, 4023))
    ports = {word.partition("id=")[2].partition(",")[0]: word for word in line if word.startswith("pcie-root-port")}
    assert [name for name, port in ports.items() if "bus=beside2" in port] == ["port2", "nic-port1"]
    assert len({port.partition("chassis=")[2].partition(",")[0] for port in ports.values()}) == len(ports)
    cards = [word for word in line if word.startswith("igb,")]
    assert [card.partition("bus=")[2].partition(",")[0] for card in cards] == ["nic-port1", "nic-port2"]
    assert len({card.partition("mac=")[2] for card in cards}) == 2


def test_a_gpu_without_vfs_has_no_sriov() -> None:
    assert not [word for word in words("tcg", 0) if "sriov" in word]


@pytest.mark.parametrize(("kind", "chip"), [("kvm", "kernel-irqchip=split"), ("tcg", "kernel-irqchip=off")])
def test_interrupt_remapping_is_on_with_either_accelerator(kind: str, chip: str) -> None:
    line = words(kind)
    assert "intel-iommu,intremap=on" in line
    assert f"q35,{chip}" in line


def test_a_host_of_several_numa_nodes_has_its_processors_take_turns_where_it_is_emulated() -> None:
    wide = replace(host(), vcpus=4, numa_nodes=2, memory_mib=4096)
    line = " ".join(arguments(Machine(wide, Path("/h"), Path("/k"), "tcg", 4022, 4023)))
    assert "tcg,thread=single,tb-size" in line
    assert "-smp 4,sockets=2 -m 4096M" in line
    assert "-numa node,nodeid=1,cpus=2-3,memdev=memory1" in line
    assert "memory-backend-ram,id=memory1,size=2048M" in line
    one = " ".join(words("tcg"))
    assert "-smp 1 -m" in one
    assert "numa" not in one
    assert "thread" not in one


def test_every_network_of_a_host_is_on_the_loopback_interface() -> None:
    networks = [word for word in words("tcg") if word.startswith(("user,", "socket,id=lan"))]
    assert len(networks) == 2
    assert "restrict=on" in networks[0]
    assert "hostfwd=tcp:127.0.0.1:4022-:22" in networks[0]
    assert "localaddr=127.0.0.1" in networks[1]


def test_addresses_of_hosts_and_networks_differ() -> None:
    assert len({mac(name, network) for name in ("a", "b") for network in ("user", "lan")}) == 4


@pytest.mark.parametrize(
    ("cpuinfo", "answer"),
    [("flags\t: fpu vmx sse", True), ("flags\t: fpu svm", True), ("flags\t: fpu svm_lock vmxnot", False), ("", False)],
)
def test_only_whole_processor_flags_promise_virtualisation(cpuinfo: str, answer: bool) -> None:
    assert has_virtualisation(cpuinfo) is answer


def test_an_emulated_host_is_told_how_fast_its_clock_is() -> None:
    cpuinfo = "flags\t: fpu hypervisor\ncpu MHz\t\t: 2596.124\n"
    assert clock("tcg", cpuinfo) == " tsc_early_khz=2596124"
    assert (clock("kvm", cpuinfo), clock("tcg", cpuinfo.replace("hypervisor", ""))) == ("", "")
    machine = Machine(host(), Path("/h"), Path("/k"), "tcg", 4022, 4023, " tsc_early_khz=2596124")
    told = arguments(machine)
    assert told[told.index("-append") + 1].endswith(" no_timer_check tsc_early_khz=2596124")


def test_a_host_key_is_private_and_told_as_ssh_tells_it(tmp_path: Path) -> None:
    public = key_pair(tmp_path / "key", "one")
    told = subprocess.run(["ssh-keygen", "-lf", tmp_path / "key.pub"], capture_output=True, text=True, check=True)
    assert sha256_fingerprint(public) == told.stdout.split()[1]
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert known_host_line("127.0.0.1", 7, public) == f"[127.0.0.1]:7 {' '.join(public.split()[:2])}"
    assert key_pair(tmp_path / "key", "one") == public


def test_the_private_key_of_a_host_is_readable_by_root_alone(tmp_path: Path) -> None:
    key_pair(tmp_path / "host_key", "one")
    packed = identity("one", 0, {"one": 0, "two": 1}, tmp_path / "host_key", "ssh-ed25519 A").pack()
    assert f"{lan_address(1)} two\n".encode() in packed
    place = packed.index(b"overlay/etc/ssh/ssh_host_ed25519_key\0")
    assert packed[place - 110 + 14 : place - 110 + 22] == f"{0o100600:08X}".encode()


@pytest.mark.parametrize(("length", "shares"), [(60, True), (81, True), (82, False), (200, False)])
def test_a_connection_is_shared_where_its_socket_has_a_possible_path(length: int, shares: bool) -> None:
    directory = Path("/" + "d" * (length - 1))
    instance = Instance("t4", directory, Process(1, 0), ssh_port=1, index=0, accelerator="tcg", scenario="")
    assert bool(instance.shared()) == shares


def test_hanging_up_where_nobody_is_connected_is_fine(tmp_path: Path) -> None:
    Instance("t4", tmp_path, Process(1, 0), ssh_port=1, index=0, accelerator="tcg", scenario="").hang_up(tmp_path / "k")


def test_a_pid_that_now_belongs_to_a_stranger_is_not_ours() -> None:
    own = identify(os.getpid())
    assert own.alive()
    assert not Process(own.pid, own.started + 1).alive()


def test_ending_a_process_waits_until_it_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    ours = identify(child.pid)
    ours.end(grace_s=5)
    assert not ours.alive()
    child.wait()


def _words_of(instance: Instance) -> bytes:
    return Path(f"/proc/{instance.process.pid}/cmdline").read_bytes()


def test_a_host_whose_qemu_ended_is_switched_on_with_the_disk_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    fleet = Fleet(places(), print)
    directory = fleet.places.state / "hosts/lab-a"
    directory.mkdir(parents=True)
    (directory / "host_key.pub").write_text("ssh-ed25519 AAAA lab-a\n")
    (directory / "disk.qcow2").write_text("kept")
    program = tmp_path / "root/lib64/ld-linux-x86-64.so.2"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nread forever < fifo\n")
    os.mkfifo(directory / "fifo")
    program.chmod(0o755)
    machine = Machine(replace(host(), name="lab-a"), directory, tmp_path / "kernel", "tcg", 2222, 3333)
    first = launch(Base(tmp_path), machine, 0, "{}")
    words = _words_of(first)
    first.process.end()
    again = fleet.switch_on("lab-a")
    try:
        assert again.running()
        assert _words_of(again) == words
        assert load(directory) == again != first
        assert main(["start", "lab-a"]) == 1
        assert capsys.readouterr().err.startswith("error: host lab-a runs already")
    finally:
        again.process.end()
    assert (directory / "disk.qcow2").read_text() == "kept"
    assert again.ssh_port == first.ssh_port


def test_a_fault_is_quoted_for_the_shell() -> None:
    assert fault_command(1, "xid", ["79", "it's"]) == (
        "printf '%s\\n' '79 it'\"'\"'s' | dd of=/sys/kernel/vgpu_lab/gpus/1/xid bs=4096 iflag=fullblock status=none"
    )


def test_variables_move_state_and_cache(tmp_path: Path) -> None:
    moved = places({"LAB_STATE": str(tmp_path / "s"), "LAB_CACHE": str(tmp_path / "c")})
    assert (moved.state, moved.cache) == (tmp_path / "s", tmp_path / "c")
    assert places({"XDG_CACHE_HOME": str(tmp_path)}).cache == tmp_path / "vgpuctl-lab"


REFUSALS = [
    (lambda: requirements.require_root("this", euid=1000), "this needs root"),
    (lambda: requirements.require_memory(12_000, 8_000), "the hosts want 12000 MiB of memory, 8000 MiB are free"),
    (lambda: requirements.require_programs({"ssh": "/usr/bin/ssh"}), "missing packages: debootstrap e2fsprogs"),
    (lambda: requirements.require_disk(Path("/nowhere/at/all"), 1 << 40), "/ has "),
]


@pytest.mark.parametrize(("act", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
def test_what_the_machine_lacks_is_one_line_with_a_way_out(act: object, message: str) -> None:
    assert callable(act)
    with pytest.raises(LabError) as caught:
        act()
    assert caught.value.message.startswith(message)
    assert caught.value.hint


def test_a_taken_port_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(LabError, match="is taken"):
            requirements.require_free_ports([taken.getsockname()[1]])


def test_free_memory_is_read_from_the_kernel() -> None:
    assert requirements.available_memory_mib("MemTotal: 9 kB\nMemAvailable:  2048000 kB\n") == 2000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ssh", "nobody"], "error: no host nobody is up"),
        (["reboot", "nobody"], "error: no host nobody is up"),
        (["up", "--scenario", "none.yaml"], "error: none.yaml: No such file or directory"),
    ],
)
def test_a_refused_command_is_one_error_line_and_leaves_nothing(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    assert main(arguments) == 1
    assert capsys.readouterr().err.splitlines()[0] == said
    assert not list(tmp_path.iterdir())


def test_down_with_nothing_up_is_fine_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    assert main(["down"]) == 0
    assert not list((tmp_path / "state").iterdir())


def test_an_emulated_host_has_one_processor_whatever_its_scenario_says() -> None:
    counts = {kind: words(kind)[words(kind).index("-smp") + 1] for kind in ("kvm", "tcg")}
    assert counts == {"kvm": str(host().vcpus), "tcg": "1"}
    assert host().vcpus > 1
