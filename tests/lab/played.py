# SPDX-License-Identifier: Apache-2.0
"""Playbooks that an operator runs by hand, on lab hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab.conftest import LabHost

_ROOT = Path(__file__).parents[2]


def play(playbook: str, group: str, host: LabHost, directory: Path, variables: Mapping[str, Any]) -> tuple[int, str]:
    """How many tasks changed something, and all that was said. ``directory``: for this run's files."""
    known = directory / "known_hosts"
    known.write_text(f"{host.known_host_line}\n")
    inventory = directory / "hosts.json"
    reach = {
        "ansible_host": host.address, "ansible_port": host.port, "ansible_user": host.user,
        "ansible_ssh_private_key_file": host.key_file, "ansible_ssh_common_args": f"-o UserKnownHostsFile={known}",
        "ansible_python_interpreter": "/usr/bin/python3", **variables,
    }  # fmt: skip
    inventory.write_text(json.dumps({group: {"hosts": {host.name: reach}}}))
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", inventory, _ROOT / "playbooks" / playbook],
        capture_output=True, text=True, timeout=600, check=False,
        env={
            "PATH": os.environ["PATH"], "HOME": str(directory), "LC_ALL": "C.UTF-8",
            "ANSIBLE_CONFIG": str(_ROOT / "playbooks/ansible.cfg"), "ANSIBLE_HOME": str(directory / "ansible"),
        },
    )  # fmt: skip
    said = done.stdout + done.stderr
    counted = [line for line in said.splitlines() if "changed=" in line]
    assert counted, said
    return int(counted[-1].partition("changed=")[2].split()[0]), said
