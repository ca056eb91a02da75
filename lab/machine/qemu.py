# SPDX-License-Identifier: Apache-2.0
"""The command line of a lab host's machine. Pure: values in, words out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from lab.machine.accelerator import processor, processors
from lab.scenario import Host

# Restricted user networking: the host is reached through the forwarded port and reaches nothing outside.
_USER_NET = "user,id=user,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"
_SWITCHES = 100
"""Slots of the root ports that carry switches follow those of GPUs."""
_NIC_SWITCHES, _NICS = 120, 140
"""The same of switches with a network card beside a GPU, and of network cards."""
_GROUP = "230.77.0.1"
_KERNEL_WORDS = (
    "console=ttyS0 intel_iommu=on iommu=pt quiet loglevel=4 mitigations=off selinux=0 nokaslr "
    "random.trust_cpu=on cryptomgr.notests systemd.show_status=0 tsc=reliable no_timer_check"
)
"""``no_timer_check``: while the machine under it is busy, an emulated timer is late and the kernel would panic."""


@dataclass(frozen=True)
class Machine:
    """Everything a host's QEMU is started with; file names are relative to the host's directory."""

    host: Host
    directory: Path
    kernel: Path
    accelerator: str
    """``kvm`` or ``tcg``."""
    ssh_port: int
    lan_port: int
    """UDP port of the lab's private network on the loopback interface."""
    clock: str = ""
    """Further words for its kernel, as :func:`lab.machine.accelerator.clock` has them."""


def mac(host: str, network: str) -> str:
    """A locally administered address that stays the same for a host's name."""
    digest = hashlib.sha256(f"{network}/{host}".encode()).digest()
    return "52:54:00:" + ":".join(f"{byte:02x}" for byte in digest[:3])


def arguments(machine: Machine) -> list[str]:
    host = machine.host
    cpus = processors(machine.accelerator, host.vcpus, host.numa_nodes)
    words = [
        "-nodefaults", "-no-user-config", "-display", "none", "-name", f"vgpu-lab-{host.name}",
        *processor(machine.accelerator, host.numa_nodes), "-smp", f"{cpus}{_sockets(host)}",
        "-m", f"{host.memory_mib}M", *_numa(host, cpus),
        "-device", "intel-iommu,intremap=on",
        "-kernel", str(machine.kernel), "-initrd", "initrd", "-append", _KERNEL_WORDS + machine.clock,
        "-blockdev", "qcow2,node-name=root,file.driver=file,file.filename=disk.qcow2,file.cache.no-flush=on",
        "-device", "virtio-blk-pci,drive=root,bootindex=1",
        "-netdev", _USER_NET.format(port=machine.ssh_port),
        "-device", f"virtio-net-pci,netdev=user,mac={mac(host.name, 'user')},romfile=",
        "-netdev", f"socket,id=lan,mcast={_GROUP}:{machine.lan_port},localaddr=127.0.0.1",
        "-device", f"virtio-net-pci,netdev=lan,mac={mac(host.name, 'lan')},romfile=",
        "-device", "virtio-rng-pci",
        "-chardev", "socket,id=console,path=console.sock,server=on,wait=off,logfile=console.log",
        "-serial", "chardev:console", "-qmp", "unix:qmp.sock,server=on,wait=off",
        "-fw_cfg", "name=opt/vgpu-lab/scenario,file=scenario.json",
    ]  # fmt: skip
    for switch in sorted({gpu.switch for gpu in host.gpus} - {0}):
        words += _port("pcie-root-port", f"root{switch}", _SWITCHES + switch)
        words += ["-device", f"x3130-upstream,id=switch{switch},bus=root{switch}"]
    shared = sorted({nic.beside for nic in host.nics} - {0})
    for number in shared:
        words += _port("pcie-root-port", f"root-nic{number}", _NIC_SWITCHES + number)
        words += ["-device", f"x3130-upstream,id=beside{number},bus=root-nic{number}"]
    for number, gpu in enumerate(host.gpus, start=1):
        if number in shared:  # a root port below a switch is no machine's, but QEMU's other ports have no ACS
            words += _port("pcie-root-port", f"port{number}", number, f",bus=beside{number},addr=0x0")
        elif gpu.switch:
            # functions of one device: Linux keeps the ports of different slots in groups of their own
            function = sum(other.switch == gpu.switch for other in host.gpus[: number - 1])
            where = f",bus=switch{gpu.switch},addr=0x0.{function:#x},multifunction=on"
            words += _port("xio3130-downstream", f"port{number}", number, where)
        else:
            words += _port("pcie-root-port", f"port{number}", number)
        words += _gpu(number, gpu.vfs)
    for number, nic in enumerate(host.nics, start=1):
        where = f",bus=beside{nic.beside},addr={number:#x}" if nic.beside else ""
        words += _port("pcie-root-port", f"nic-port{number}", _NICS + number, where)
        words += ["-device", f"igb,bus=nic-port{number},mac={mac(host.name, f'nic{number}')},romfile="]
    return words


def _sockets(host: Host) -> str:
    return f",sockets={host.numa_nodes}" if host.numa_nodes > 1 else ""


def _numa(host: Host, cpus: int) -> list[str]:
    """Processors and memory of each node; none where there is one."""
    nodes, words = host.numa_nodes, list[str]()
    for node in range(nodes if nodes > 1 else 0):
        first, size = node * cpus // nodes, host.memory_mib // nodes
        words += ["-object", f"memory-backend-ram,id=memory{node},size={size}M"]
        words += ["-numa", f"node,nodeid={node},cpus={first}-{first + cpus // nodes - 1},memdev=memory{node}"]
    return words


def _port(kind: str, name: str, slot: int, where: str = "") -> list[str]:
    return ["-device", f"{kind},id={name},chassis={slot},slot={slot}{where}"]


def _gpu(number: int, vfs: int) -> list[str]:
    """An emulated NVMe controller behind a port of its own: the PCI and SR-IOV body of a GPU."""
    device = f"nvme,serial=gpu{number},bus=port{number},subsys=gpu{number}"
    if vfs:
        # QEMU wants as many queue pairs and vectors as the VFs can take together, and one for the PF
        device += f",sriov_max_vfs={vfs},sriov_vq_flexible={2 * vfs},sriov_vi_flexible={vfs}"
        device += f",max_ioqpairs={2 * vfs + 2},msix_qsize={vfs + 1}"
    return ["-device", f"nvme-subsys,id=gpu{number}", "-device", device]
