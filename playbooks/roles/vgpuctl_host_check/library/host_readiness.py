# SPDX-License-Identifier: Apache-2.0
"""What a GPU host has of what it needs. Reads files and asks programs for their versions; changes nothing."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: host_readiness
short_description: Says what a GPU host has of what it needs
description: Changes nothing. Answers as the return value C(readiness).
author: vgpuctl
options:
  python: {description: Interpreter that would run the agent., type: path, required: true}
  storage: {description: The agent's storage directory., type: path, required: true}
  root: {description: Below which files are looked for., type: path, default: /}
"""

MODULES = ("kvm", "vfio_pci", "vfio_iommu_type1", "nouveau", "nvidia", "nvidia_vgpu_vfio", "mdev")
LIBVIRT_SOCKETS = ("run/libvirt/virtqemud-sock", "run/libvirt/libvirt-sock")
LIBVIRT_DAEMONS = ("virtqemud", "libvirtd")
EMULATORS = ("qemu-system-x86_64", "qemu-system-aarch64", "qemu-kvm", "/usr/libexec/qemu-kvm")
SWITCH_MANAGER = "SW_MNG"
SUBNET_MANAGER = {"nvlsm": "opt/nvidia/nvlsm/sbin/nvlsm", "ib_umad": "sys/module/ib_umad"}
VERSION = re.compile(r"\d+(?:\.\d+)+")


def text_of(path: Path) -> str:
    """Empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def said(words: list[str]) -> str:
    """What a program prints; empty when it is not there or hangs."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def version_of(programs: tuple[str, ...]) -> str | None:
    """The first version that the first of these programs prints."""
    for program in programs:
        found = shutil.which(program, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        match = VERSION.search(said([found, "--version"])) if found else None
        if match:
            return match[0]
    return None


def os_release(root: Path) -> dict[str, str]:
    lines = text_of(root / "etc/os-release").splitlines()
    return dict(line.replace('"', "").split("=", 1) for line in lines if "=" in line)


def secure_boot(root: Path) -> bool | None:
    """None: not booted by EFI."""
    found = next((root / "sys/firmware/efi/efivars").glob("SecureBoot-*"), None)
    if found is None:
        return None
    try:
        return found.read_bytes()[-1:] == b"\x01"
    except OSError:
        return None


def gpus(root: Path) -> list[dict[str, object]]:
    """Physical functions of NVIDIA's that are GPUs."""
    found = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        is_gpu = text_of(device / "vendor") == "0x10de" and text_of(device / "class").startswith("0x03")
        if is_gpu and not (device / "physfn").exists():
            driver = device / "driver"
            found.append(
                {
                    "address": device.name,
                    "driver": driver.resolve().name if driver.exists() else None,
                    "iommu_group": (device / "iommu_group").exists(),
                    "takes_types": any(device.glob("virtfn*/nvidia/current_vgpu_type")),
                }
            )
    return found


def free_bytes(path: Path) -> int:
    """On the file system where ``path`` is or would be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def python_of(program: str) -> dict[str, object]:
    """Version as ``[major, minor]``, empty when it does not run, and whether it finds libvirt."""
    script = (
        "import importlib.util as u, sys;"
        "print(sys.version_info[0], sys.version_info[1], u.find_spec('libvirt') is not None)"
    )
    words = said([program, "-I", "-c", script]).split()
    if len(words) != 3:
        return {"version": [], "libvirt": False}
    return {"version": [int(words[0]), int(words[1])], "libvirt": words[2] == "True"}


def ovn() -> dict[str, object]:
    """The version of ovn-controller (None: none is installed), whom it is told to ask, and whether that answers."""
    remote = said(["ovs-vsctl", "--timeout=5", "--if-exists", "get", "Open_vSwitch", ".", "external_ids:ovn-remote"])
    return {
        "version": version_of(("ovn-controller",)),
        "remote": remote.strip().strip('"') or None,
        "connected": said(["ovn-appctl", "-t", "ovn-controller", "connection-status"]).strip() == "connected",
    }


def huge_pages(root: Path, size: str) -> int:
    return int(text_of(root / "sys/kernel/mm/hugepages" / f"hugepages-{size}" / "nr_hugepages") or 0)


def driver_of(root: Path) -> str | None:
    """NVIDIA's, as its module says; some say it only where the driver itself answers."""
    told = VERSION.search(text_of(root / "proc/driver/nvidia/version"))
    return text_of(root / "sys/module/nvidia/version") or (told.group() if told else None)


def mounts_large_pages(root: Path) -> bool:
    """Those of 1 GiB, as the kernel writes it."""
    return any(
        line.split()[2:3] == ["hugetlbfs"] and "pagesize=1024M" in line
        for line in text_of(root / "proc/mounts").splitlines()
    )


def has_switches(root: Path) -> bool:
    """NVSwitches are NVIDIA's PCI bridges of the class "other", or managed by a ConnectX-7."""
    devices = (root / "sys/bus/pci/devices").glob("*")
    return any(is_of(device, "0x10de", "0x0680") for device in devices) or has_managed_switches(root)


def has_managed_switches(root: Path) -> bool:
    """NVSwitches of B200 and later are no PCI devices: a ConnectX-7 manages them whose vital product data says so;
    NVIDIA's fabric manager looks for it when it starts."""
    devices = (root / "sys/bus/pci/devices").glob("*")
    return any(SWITCH_MANAGER in text_of(card / "vpd") for card in devices if is_of(card, "0x15b3", "0x0207"))


def lacks_for_switches(root: Path) -> list[str]:
    """What such switches need beside the fabric manager, which starts NVIDIA's subnet manager by itself."""
    if not has_managed_switches(root):
        return []
    return [name for name, place in SUBNET_MANAGER.items() if not (root / place).exists()]


def is_of(device: Path, vendor: str, pci_class: str) -> bool:
    return text_of(device / "vendor") == vendor and text_of(device / "class").startswith(pci_class)


def confinement(root: Path) -> str | None:
    """By which libvirt can keep each QEMU to its own files."""
    if text_of(root / "sys/module/apparmor/parameters/enabled") == "Y":
        return "AppArmor"
    return "SELinux" if (root / "sys/fs/selinux/enforce").exists() else None


def uefi(root: Path) -> bool:
    """QEMU's firmware descriptions (docs/interop/firmware.json) name some for x86-64 without Secure Boot."""
    described = {
        file.name: file
        for one in ("usr/share", "etc")
        for file in sorted((root / one / "qemu/firmware").glob("*.json"))
    }
    return any(fits(text_of(file)) for file in described.values())


def tpm(root: Path) -> bool:
    """What libvirt needs to give a VM a TPM, where the agent looks for it as well (agent/sysfs/features.py)."""
    places, programs = ("usr/bin", "usr/sbin", "usr/local/bin", "bin"), ("swtpm", "swtpm_setup", "swtpm_ioctl")
    return all(any(os.access(root / place / name, os.X_OK) for place in places) for name in programs)


def fits(text: str) -> bool:
    try:
        told = json.loads(text)
        features, types = set(told["features"]), told["interface-types"]
        machines = [name for one in told["targets"] if one["architecture"] == "x86_64" for name in one["machines"]]
    except (ValueError, KeyError, TypeError):
        return False
    return "uefi" in types and not features & {"secure-boot", "requires-smm"} and any("q35" in one for one in machines)


def read(root: Path, python: str, storage: str) -> dict[str, object]:
    """All of it, as JSON."""
    kernel, release = platform.release(), os_release(root)
    return {
        "os": release.get("PRETTY_NAME") or release.get("ID", ""),
        "os_id": release.get("ID", ""),
        "kernel": kernel,
        "architecture": platform.machine(),
        "command_line": text_of(root / "proc/cmdline"),
        "amd": "AuthenticAMD" in text_of(root / "proc/cpuinfo"),
        "iommu_groups": len(list((root / "sys/kernel/iommu_groups").glob("*"))),
        "modules": [name for name in MODULES if (root / "sys/module" / name).is_dir()],
        "kvm": (root / "dev/kvm").exists(),
        "systemd": (root / "run/systemd/system").is_dir(),
        "libvirt_listens": any((root / path).exists() for path in LIBVIRT_SOCKETS),
        "libvirt": version_of(LIBVIRT_DAEMONS),
        "qemu": version_of(EMULATORS),
        "python": python_of(python),
        "driver": driver_of(root),
        "headers": (root / "lib/modules" / kernel / "build").exists(),
        "nvswitches": has_switches(root),
        "switches_lack": lacks_for_switches(root),
        "fabric_manager": version_of(("nv-fabricmanager",)),
        "dcgm": version_of(("dcgmi",)),
        "ovn": ovn(),
        "huge_pages_2m": huge_pages(root, "2048kB"),
        "huge_pages_1g": huge_pages(root, "1048576kB"),
        "large_pages_mounted": mounts_large_pages(root),
        "secure_boot": secure_boot(root),
        "confinement": confinement(root),
        "features": [name for name, has in (("uefi", uefi), ("tpm", tpm)) if has(root)],
        "gpus": gpus(root),
        "storage_free_bytes": free_bytes(root / storage.lstrip("/")),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "storage": {"type": "path", "required": True},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given = module.params
    module.exit_json(changed=False, readiness=read(Path(given["root"]), given["python"], given["storage"]))


if __name__ == "__main__":
    main()
