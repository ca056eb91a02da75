# SPDX-License-Identifier: Apache-2.0
"""One read-only look at a host before the agent is installed or removed: one round trip instead of many."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: agent_preflight
short_description: Says what the vgpuctl agent finds on a host
description: Changes nothing. Answers as the return value C(host).
author: vgpuctl
options:
  python: {description: Interpreter that will run the agent., type: path, required: true}
  program: {description: Where the agent is or will be., type: path, required: true}
  storage: {description: The agent's storage directory., type: path, required: true}
"""

CONFIG = Path("/etc/vgpuctl-agent/config.json")
OS_RELEASE = Path("/etc/os-release")
FAMILIES = {"debian": "debian", "ubuntu": "debian", "rhel": "redhat", "fedora": "redhat", "centos": "redhat"}
LIBVIRT_SOCKETS = (Path("/run/libvirt/virtqemud-sock"), Path("/run/libvirt/libvirt-sock"))
"""Of the modular and the monolithic daemon; systemd starts either on demand."""


def os_family() -> str:
    """``debian``, ``redhat`` or ``other``, from os-release's ID and ID_LIKE."""
    lines = OS_RELEASE.read_text(encoding="utf-8").splitlines() if OS_RELEASE.exists() else []
    fields = dict(line.replace('"', "").split("=", 1) for line in lines if "=" in line)
    names = [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
    return next((FAMILIES[name] for name in names if name in FAMILIES), "other")


def interpreter(python: str) -> dict[str, object]:
    """Version of ``python`` as ``[major, minor]`` (empty when it does not run) and whether it finds libvirt."""
    program = (
        "import importlib.util as u, sys;"
        "print(sys.version_info[0], sys.version_info[1], u.find_spec('libvirt') is not None)"
    )
    try:
        done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return {"version": [], "libvirt": False}
    words = done.stdout.split()
    if len(words) != 3:
        return {"version": [], "libvirt": False}
    return {"version": [int(words[0]), int(words[1])], "libvirt": words[2] == "True"}


def read_object(path: Path) -> dict[str, object]:
    """The JSON object in ``path``; an empty one when there is none that can be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def names_in(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir()) if directory.is_dir() else []


def sha256_of(path: Path) -> str:
    """Empty when there is no such file."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def nvidia_functions() -> list[str]:
    """PCI addresses of all functions with NVIDIA's vendor id."""
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    return sorted(path.parent.name for path in vendors if path.read_text().strip() == "0x10de")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "storage": {"type": "path", "required": True},
            "program": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    storage = Path(module.params["storage"])
    module.exit_json(
        changed=False,
        host={
            "architecture": platform.machine(),
            "family": os_family(),
            "python": interpreter(module.params["python"]),
            "systemd": Path("/run/systemd/system").is_dir(),
            "libvirt_listens": any(path.exists() for path in LIBVIRT_SOCKETS),
            "nvidia": nvidia_functions(),
            "program_sha256": sha256_of(Path(module.params["program"])),
            "site": read_object(CONFIG).get("site"),
            "volumes": names_in(storage / "volumes") + names_in(storage / "data"),
            "packages": read_object(storage / "installed.json").get("packages", []),
        },
    )


if __name__ == "__main__":
    main()
