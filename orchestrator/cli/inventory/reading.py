# SPDX-License-Identifier: Apache-2.0
"""An Ansible inventory of any form, read by ``ansible-inventory``: Ansible's own code is a process, never imported."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.cli.inventory.reaching import SshReach, ask_ansible
from orchestrator.core.errors import Fatal, InvalidInput, why_unreadable

OUR_GROUP: Final = "vgpuctl_hosts"
"""An inventory that has this group means its hosts, whatever else stands in it."""
MAX_OUTPUT_BYTES: Final = 256 * 1024 * 1024
READING_LIMIT_S: Final = 300
"""Plugins may ask a cloud or a CMDB."""

LONGEST: Final = 300
_SAID_BY_PLUGIN: Final = re.compile(r"^\[WARNING\]: Failed to parse inventory with '(\w+)' plugin: (.+)$", re.MULTILINE)
_FAILED_SOURCE: Final = re.compile(r"Completely failed to parse inventory source (.+)$", re.MULTILINE)

_UNDECRYPTED: Final = "no vault secrets"
"""What Ansible says to encrypted files without a password for them."""
_NOT_OPENED: Final = "no vault secrets were found that could decrypt"
"""The same where one was given (ansible-core, lib/ansible/parsing/vault)."""

Variables = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class InventoryHost:
    """``variables``: of it and its groups, as Ansible merges them. ``reach``: how Ansible would reach it."""

    variables: Variables
    reach: SshReach


def read_inventory(
    sources: Sequence[str], limit: str | None, vault_password_file: str | None = None
) -> dict[str, InventoryHost]:
    """By the inventory's name of each host, those hosts that ``limit`` (a pattern of Ansible) matches.

    Without ``limit``: the hosts of the group :data:`OUR_GROUP` if there is one, else all.

    :raises InvalidInput: ``inventory.unreadable``, ``inventory.encrypted``, ``inventory.empty``, ``cli.usage``
    :raises Fatal: ``ansible.missing``
    """
    _check_said(sources, limit)
    options = [f"--inventory={source}" for source in sources]
    options += [] if limit is None else [f"--limit={limit}"]
    options += [] if vault_password_file is None else [f"--vault-password-file={vault_password_file}"]
    listed = _listed(sources, options)
    group = OUR_GROUP if limit is None and OUR_GROUP in listed else "all"
    names = _names(listed, group)
    if not names:
        raise InvalidInput(
            "inventory.empty",
            f"no host of the inventory matches {limit!a}" if limit else "the inventory has no hosts",
            hint="ansible-inventory --graph -i INVENTORY shows what is in it",
        )
    variables = listed.get("_meta", {}).get("hostvars", {})
    try:
        reach, why = ask_ansible(_program("ansible"), options, group, _environment())
    except subprocess.TimeoutExpired as error:
        raise _unreadable(sources, "Ansible does not come to an end of how it would reach the hosts") from error
    silent = SshReach(ssh={}, why=why)
    return {name: InventoryHost(variables=variables.get(name, {}), reach=reach.get(name, silent)) for name in names}


def _check_said(sources: Sequence[str], limit: str | None) -> None:
    """An empty option is mostly a variable that nobody set. Ansible reads the directory one is in, or takes all."""
    if "" in sources:
        raise InvalidInput("cli.usage", "--inventory names nothing", hint="give a file or a directory")
    if limit == "":
        raise InvalidInput("cli.usage", "--limit names no host", hint="leave it out for all hosts")
    for source in sources:
        try:
            path = Path(source)
            odd = path.exists() and not (path.is_file() or path.is_dir())
        except (OSError, ValueError) as error:
            raise _unreadable([source], why_unreadable(error)) from error
        if odd:
            raise _unreadable([source], "it is not a regular file, nor a directory")


def _names(listed: Mapping[str, Any], group: str) -> list[str]:
    """Hosts of a group and of its children, each once; groups cannot contain themselves, says Ansible."""
    names: dict[str, None] = {}
    wanted, seen = [group], set[str]()
    while wanted:
        name = wanted.pop(0)
        if name in seen:
            continue
        seen.add(name)
        members = listed.get(name, {})
        names.update(dict.fromkeys(members.get("hosts", ())))
        wanted += members.get("children", ())
    return list(names)


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True",
        "ANSIBLE_DUPLICATE_YAML_DICT_KEY": "error",  # else the last one counts, and a host is another machine
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_VERBOSITY": "0",  # with more, and with its debugging, it talks before it answers
        "ANSIBLE_DEBUG": "False",
        "ANSIBLE_ASK_VAULT_PASS": "False",  # nobody is there to be asked
        "LC_ALL": "C.UTF-8",  # it runs in no other encoding, nor with a locale that this machine does not have
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
    }


def _listed(sources: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
    words = [_program("ansible-inventory"), "--list", *options]
    try:
        done = subprocess.run(
            words,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=READING_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _unreadable(sources, f"nothing came within {READING_LIMIT_S} s") from error
    errors = done.stderr.decode(errors="replace")
    if done.returncode != 0 or len(done.stdout) > MAX_OUTPUT_BYTES:
        raise (
            _encrypted(sources, errors)
            if _UNDECRYPTED in errors
            else _unreadable(sources, _why(errors), details=errors)
        )
    try:
        listed = json.loads(done.stdout, object_hook=_untagged)
    except (ValueError, RecursionError) as error:
        raise _unreadable(sources, "ansible-inventory did not answer with JSON", details=errors) from error
    if not isinstance(listed, dict):
        raise _unreadable(sources, "ansible-inventory did not answer with an object", details=errors)
    return listed


def _untagged(value: dict[str, Any]) -> Any:
    """What a plugin has composed, or somebody marked so, comes as text that is no template to Ansible."""
    return value["__ansible_unsafe"] if value.keys() == {"__ansible_unsafe"} else value


def _program(name: str) -> str:
    """Beside this Python first: it comes with us."""
    beside = Path(sys.executable).with_name(name)
    program = str(beside) if beside.is_file() else shutil.which(name)
    if program is None:
        raise Fatal("ansible.missing", f"there is no {name} on this machine", hint="install ansible-core")
    return program


def _why(printed: str) -> str:
    """The line that names the cause: what the plugin says that should have read it, else the last error.

    Ansible tries one plugin after the other, so that a slip in YAML is an odd host of an INI file, too."""
    plugins: dict[str, str] = dict(_SAID_BY_PLUGIN.findall(printed))
    failed = _FAILED_SOURCE.search(printed)
    if "script" in plugins:
        return plugins["script"][:LONGEST]
    if failed is not None and failed[1].endswith((".yml", ".yaml", ".json")) and "yaml" in plugins:
        own = "auto" if plugins["yaml"].startswith("Plugin configuration") and "auto" in plugins else "yaml"
        return plugins[own][:LONGEST]
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Failed to parse inventory:")]
    errors = [line.split("]: ", 1)[-1] for line in lines if line.startswith(("[ERROR]", "ERROR"))]
    return (causes + errors + lines[-1:] + ["it said nothing"])[0][:LONGEST]


def _unreadable(sources: Sequence[str], why: str, details: str | None = None) -> InvalidInput:
    named = ", ".join(ascii(source)[1:-1][:80] for source in sources)
    return InvalidInput(
        "inventory.unreadable",
        f"cannot read the inventory {named}: {why}",
        hint="ansible-inventory --list -i INVENTORY must succeed",
        details=details,
    )


def _encrypted(sources: Sequence[str], errors: str) -> InvalidInput:
    named = ", ".join(ascii(source)[1:-1][:80] for source in sources)
    if _NOT_OPENED in errors:
        raise InvalidInput(
            "inventory.vault_password",
            f"the vault password does not open what ansible-vault encrypted in the inventory {named}",
            hint="ansible-vault view --vault-password-file FILE ENCRYPTED_FILE tells which one does",
            details=errors,
        )
    return InvalidInput(
        "inventory.encrypted",
        f"the inventory {named} has variables that ansible-vault encrypted",
        hint="add --vault-password-file FILE, or set ANSIBLE_VAULT_PASSWORD_FILE",
        details=errors,
    )
