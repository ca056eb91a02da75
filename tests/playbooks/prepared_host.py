# SPDX-License-Identifier: Apache-2.0
"""The playbook prepare-host with the real Ansible, on a directory that has a host's files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.adapters.ansible.connection import GROUP
from tests.playbooks.guest_with_packages import PackagedGuest
from tests.playbooks.local_runs import ROOT


@dataclass(frozen=True)
class Prepared:
    """One run: how many tasks changed something, and all that was said."""

    changed: int
    failed: bool
    said: str


def prepare(host: PackagedGuest, variables: dict[str, Any], flags: Sequence[str] = ()) -> Prepared:
    """``variables``: what the operator's inventory says of the host."""
    roots = {f"vgpuctl_host_{role}_root": str(host.root) for role in ("bridges", "hugepages", "storage", "exporter")}
    local = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "ansible_remote_tmp": str(host.root / "tmp"),
    }
    inventory = host.root / "hosts.json"
    inventory.write_text(json.dumps({GROUP: {"hosts": {"gpu-1": {**local, **roots, **variables}}}}))
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", inventory, "-vv", *flags,
         ROOT / "playbooks/prepare-host.yml"],
        capture_output=True, text=True, timeout=300, check=False,
        env={
            "PATH": f"{host.root}/bin:{os.environ['PATH']}", "HOME": str(host.root), "LC_ALL": "C.UTF-8",
            "GUEST": str(host.root), "ANSIBLE_CONFIG": str(ROOT / "playbooks/ansible.cfg"),
            "ANSIBLE_HOME": str(host.root / "ansible"),
        },
    )  # fmt: skip
    said = done.stdout + done.stderr
    counted = re.search(r"gpu-1 +: ok=\d+ +changed=(\d+)", said)
    assert counted, said
    return Prepared(int(counted[1]), done.returncode != 0, said)
