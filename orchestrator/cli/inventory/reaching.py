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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_STAND_IN: Final = """#!/bin/sh
# ssh -G prints what these arguments mean and connects nowhere.
for word; do host=$name; name=$word; done
here=${0%/*}
{ printf '%s\\n%s\\n' "$name" "$host"; ssh -G -F "$here/config" -o IdentityFile=none "$@"; } >"$here/said.$$" 2>&1
exit 0
"""
_CONFIG: Final = "User root\n"
"""For what neither the inventory nor ansible.cfg says. A person's own ~/.ssh/config is not read: the server connects
from another place. Nor are his keys looked for, whatever file of ssh's the arguments name (``IdentityFile=none``)."""
SETTINGS: Final = {
    "DEFAULT_TRANSPORT": ("ansible_connection", "transport of ansible.cfg or ANSIBLE_TRANSPORT"),
    "DEFAULT_BECOME_METHOD": ("ansible_become_method", "become_method of ansible.cfg or ANSIBLE_BECOME_METHOD"),
    "DEFAULT_BECOME_USER": ("ansible_become_user", "become_user of ansible.cfg or ANSIBLE_BECOME_USER"),
    "DEFAULT_ASK_PASS": ("ansible_password", "ask_pass of ansible.cfg or ANSIBLE_ASK_PASS"),
    "CONNECTION_PASSWORD_FILE": ("ansible_password", "connection_password_file of ansible.cfg or its variable"),
    "DEFAULT_BECOME_ASK_PASS": ("ansible_become_password", "become_ask_pass of ansible.cfg or ANSIBLE_BECOME_ASK_PASS"),
    "BECOME_PASSWORD_FILE": ("ansible_become_password", "become_password_file of ansible.cfg or its variable"),
}
"""By Ansible's name of a setting, the variable of a host that counts before it, and what people call it."""
_OWN: Final = {"ANSIBLE_STRATEGY": "linear", "ANSIBLE_ANY_ERRORS_FATAL": "False"}
"""One host is asked after the other, and one that cannot be reached keeps no other from being asked."""
_ASKED: Final = "of "
_NAMES: Final = ", ".join(map(repr, SETTINGS))
_QUESTION: Final = (
    f"{{{{ {{'name': inventory_hostname, 'settings': query('ansible.builtin.config', {_NAMES})}} | to_json }}}}"
)
_REFUSED: Final = re.compile(r"^(\S+) \| (?:FAILED|UNREACHABLE)[^\n]*\n([^\n]+)", re.MULTILINE)
_NO_KEY: Final = re.compile(r"Warning: Identity file (.+) not accessible: ")
_LIMIT_S: Final = 1800
_LONGEST: Final = 300


@dataclass(frozen=True, kw_only=True)
class SshReach:
    """``host``: what ssh would be told to connect to. ``ssh``: by ``ssh -G``'s name of each option its values; without
    ``hostname`` ssh takes the arguments for none, or Ansible does not come to that. ``why``: what they say to it.
    ``settings``: of :data:`SETTINGS`, as Ansible has them for the host."""

    host: str = ""
    ssh: Mapping[str, tuple[str, ...]]
    why: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


def ask_ansible(
    program: str, options: list[str], pattern: str, environment: Mapping[str, str]
) -> tuple[dict[str, SshReach], str]:
    """By the inventory's name of each host that ``pattern`` matches, and why others are missing. ``program``: Ansible's
    ``ansible``; ``options``: inventories, limits and vault passwords for it.

    :raises subprocess.TimeoutExpired: Ansible did not end
    """
    with tempfile.TemporaryDirectory() as directory:
        stand_in = Path(directory, "ssh")
        stand_in.write_text(_STAND_IN)
        stand_in.chmod(0o700)
        Path(directory, "config").write_text(_CONFIG)
        variables = {"ansible_connection": "ssh", "ansible_ssh_executable": str(stand_in), "ansible_become": False}
        words = [program, pattern, *options, "--module-name=raw", f"--args={_ASKED}{_QUESTION}"]
        done = subprocess.run(
            [*words, f"--extra-vars={json.dumps(variables)}"],
            env={**environment, **_OWN}, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=False,
        )  # fmt: skip
        printed = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
        refused = {name: SshReach(ssh={}, why=why[:_LONGEST]) for name, why in _REFUSED.findall(printed)}
        answers = (path.read_text(errors="replace") for path in Path(directory).glob("said.*"))
        errors = [line for line in printed.splitlines() if line.startswith(("[ERROR]", "ERROR"))]
        why = [*errors, "Ansible does not say how it would reach it"][0]
        return refused | dict(map(_read, answers)), why[:_LONGEST]


def _read(text: str) -> tuple[str, SshReach]:
    first_line, host, *lines = text.splitlines()
    values: dict[str, tuple[str, ...]] = {}
    for line in lines:
        missing = _NO_KEY.match(line)
        key, _, value = f"identityfile {missing[1]}".partition(" ") if missing else line.partition(" ")
        if value != "none":
            values[key] = (*values.get(key, ()), value)
    taken = values.get("host", (host,))[0]  # as ssh was called with it; older ones do not tell
    if taken != host and not host.endswith(f"@{taken}") and not host.startswith("ssh://"):
        values, lines = {}, [f"ssh takes {taken!a} of its arguments for the host"]
    understood = values if "hostname" in values and "port" in values else {}
    answer = json.loads(first_line.removeprefix(_ASKED))
    settings = {name: str(value) for name, value in zip(SETTINGS, answer["settings"], strict=True) if value}
    why = lines[0][:_LONGEST] if lines else ""
    return answer["name"], SshReach(host=host, ssh=understood, why=why, settings=settings)
