# SPDX-License-Identifier: Apache-2.0
"""What is on a host, read past the product: by ssh with the kernel's files, virsh and ls."""

from __future__ import annotations

from collections.abc import Callable

Shell = Callable[[str], str]
"""Runs a command line on the host as root, returns its output, raises when it fails."""

_HEADING = "fact "
_FACTS = {
    "mdevs": "ls /sys/bus/mdev/devices 2>/dev/null || true",
    "vgpu_types": "grep -Hv '^0$' /sys/bus/pci/devices/*/nvidia/current_vgpu_type 2>/dev/null || true",
    "drivers": "for gpu in $(lspci -D -d 10de: | cut -d' ' -f1); do cd /sys/bus/pci/devices/$gpu; "
    "echo $gpu $(basename $(readlink driver)) $(cat driver_override sriov_numvfs 2>/dev/null); done",
    "domains": "virsh -q list --all --uuid || exit 1",
    "volumes": "ls /var/lib/vgpuctl-agent/volumes 2>/dev/null || true",
    "seeds": "ls /var/lib/vgpuctl-agent/seeds 2>/dev/null || true",
    "nvram": "ls /var/lib/vgpuctl-agent/nvram 2>/dev/null || true",
    "partial_files": "find /var/lib/vgpuctl-agent -name '*.part*' -o -name '*.tmp*' 2>/dev/null || true",
}


def facts(shell: Shell) -> dict[str, list[str]]:
    """Everything that a VM leaves behind when something went wrong; base images and networks aside."""
    told = shell("; ".join(f"echo {_HEADING}{name}; {command}" for name, command in _FACTS.items()))
    found: dict[str, list[str]] = {}
    seen: list[str] = []
    for line in filter(str.strip, told.split("\n")):
        if line.startswith(_HEADING):
            found[line.removeprefix(_HEADING)] = seen = []
        else:
            seen.append(line)
    assert set(found) == set(_FACTS), told
    return {name: sorted(lines) for name, lines in found.items()}


_OWNERS = (
    'python3 -c \'import sqlite3; db = sqlite3.connect("/var/lib/vgpuctl-agent/ledger/ledger.sqlite"); '
    '[print(*row) for row in db.execute("SELECT vm FROM owners WHERE vm <> ? '
    'UNION SELECT vm FROM wanted WHERE running", ("host",))]\''
)


def owners(shell: Shell) -> set[str]:
    """Ids of the VMs that own or want something by the ledger of the host's agent; networks belong to no single one."""
    return set(shell(_OWNERS).split())


def vgpu_count(shell: Shell) -> int:
    found = facts(shell)
    return len(found["mdevs"]) + len(found["vgpu_types"])
