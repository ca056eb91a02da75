# SPDX-License-Identifier: Apache-2.0
"""How Ansible itself would reach each host of an inventory: it runs with a stand-in for ssh, which connects nowhere.

Old names of variables, groups, templates, encrypted values and ansible.cfg are Ansible's to judge, what ssh's arguments
mean is ``ssh -G``'s to say.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STAND_IN: Final = """#!/bin/sh
# ssh -G prints what these arguments mean and connects nowhere.
for word; do host=$name; name=$word; done
here=${0%/*}
{ printf '%s\\n%s\\n' "$name" "$host"; ssh -G -F "$here/config" "$@"; } >"$here/said.$$" 2>&1
exit 0
"""
_CONFIG: Final = "User root\nIdentityFile none\n"
"""For what neither the inventory nor ansible.cfg says. A person's own ~/.ssh/config is not read: the server connects
from another place."""
_ASKED: Final = "of "
_REFUSED: Final = re.compile(r"^(\S+) \| (?:FAILED|UNREACHABLE)[^\n]*\n([^\n]+)", re.MULTILINE)
_NO_KEY: Final = re.compile(r"Warning: Identity file (.+) not accessible: ")
_LIMIT_S: Final = 1800
_LONGEST: Final = 300


@dataclass(frozen=True, kw_only=True)
class SshReach:
    """``host``: what ssh would be told to connect to. ``ssh``: by ``ssh -G``'s name of each option its values; without
    ``hostname`` ssh takes the arguments for none, or Ansible does not come to that. ``why``: what they say to it."""

    host: str = ""
    ssh: Mapping[str, tuple[str, ...]]
    why: str = ""


def ask_ansible(program: str, options: list[str], pattern: str, environment: Mapping[str, str]) -> dict[str, SshReach]:
    """By the inventory's name of each host that ``pattern`` matches. ``program``: Ansible's ``ansible``; ``options``:
    inventories, limits and vault passwords for it.

    :raises subprocess.TimeoutExpired: Ansible did not end
    """
    with tempfile.TemporaryDirectory() as directory:
        stand_in = Path(directory, "ssh")
        stand_in.write_text(_STAND_IN)
        stand_in.chmod(0o700)
        Path(directory, "config").write_text(_CONFIG)
        said = {"ansible_connection": "ssh", "ansible_ssh_executable": str(stand_in), "ansible_become": False}
        words = [program, pattern, *options, "--module-name=raw", f"--args={_ASKED}{{{{ inventory_hostname }}}}"]
        done = subprocess.run(
            [*words, f"--extra-vars={json.dumps(said)}"],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=False,
        )  # fmt: skip
        told = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
        refused = {name: SshReach(ssh={}, why=why[:_LONGEST]) for name, why in _REFUSED.findall(told)}
        answers = (path.read_text(errors="replace") for path in Path(directory).glob("said.*"))
        return refused | dict(map(_read, answers))


def _read(text: str) -> tuple[str, SshReach]:
    asked, host, *lines = text.splitlines()
    values: dict[str, tuple[str, ...]] = {}
    for line in lines:
        missing = _NO_KEY.match(line)
        key, _, value = f"identityfile {missing[1]}".partition(" ") if missing else line.partition(" ")
        if value != "none":
            values[key] = (*values.get(key, ()), value)
    understood = values if "hostname" in values and "port" in values else {}
    return asked.removeprefix(_ASKED), SshReach(host=host, ssh=understood, why=lines[0][:_LONGEST] if lines else "")
