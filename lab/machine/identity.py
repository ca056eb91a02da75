# SPDX-License-Identifier: Apache-2.0
"""The files that make a booted image this one host: name, machine id, ssh keys, network."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lab.image.cpio import Archive
from lab.machine.qemu import mac

LAN = "10.77.0"


def lan_address(index: int) -> str:
    """Address on the lab's private network of the host that came up as number ``index``."""
    return f"{LAN}.{index + 10}"


def identity(name: str, index: int, peers: dict[str, int], host_key: Path, login: str) -> Archive:
    """Files under ``overlay/``. ``peers`` are all hosts with their numbers, ``login`` the root login's public line."""
    archive = Archive()
    archive.file("overlay/etc/hostname", f"{name}\n")
    others = "".join(f"{lan_address(number)} {peer}\n" for peer, number in peers.items() if peer != name)
    archive.file("overlay/etc/hosts", f"127.0.0.1 localhost\n{lan_address(index)} {name}\n{others}")
    archive.file("overlay/etc/machine-id", hashlib.sha256(f"vgpu-lab/{name}".encode()).hexdigest()[:32] + "\n")
    archive.file("overlay/etc/ssh/ssh_host_ed25519_key", host_key.read_bytes(), 0o600)
    archive.file("overlay/etc/ssh/ssh_host_ed25519_key.pub", host_key.with_name(f"{host_key.name}.pub").read_bytes())
    archive.directory("overlay/root", 0o700)
    archive.directory("overlay/root/.ssh", 0o700)
    archive.file("overlay/root/.ssh/authorized_keys", f"{login}\n", 0o600)
    archive.file("overlay/etc/systemd/network/10-user.network", _network(mac(name, "user"), "DHCP=ipv4"))
    archive.file(
        "overlay/etc/systemd/network/20-lan.network", _network(mac(name, "lan"), f"Address={lan_address(index)}/24")
    )
    return archive


def _network(address: str, setting: str) -> str:
    return f"[Match]\nPermanentMACAddress={address}\n\n[Network]\n{setting}\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
