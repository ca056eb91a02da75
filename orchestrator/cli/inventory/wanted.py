# SPDX-License-Identifier: Apache-2.0
"""What an inventory's variables say about a host, as ``host add`` takes it. Checked whole before anything is done."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.cli.inventory.reaching import SETTINGS, SshReach
from orchestrator.cli.inventory.reading import InventoryHost, Variables
from orchestrator.core.errors import InvalidInput, Reason
from orchestrator.core.hosts.host import check_address, check_gpus, check_user
from orchestrator.core.labels import Labels, check_labels
from orchestrator.core.names import check_name

_SSH_ARGUMENTS: Final = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
_TEXTS: Final = ("ansible_host", "ansible_ssh_host", "ansible_user", "ansible_ssh_user")
_PORTS: Final = ("ansible_port", "ansible_ssh_port")
_SECRET: Final = re.compile(r"ansible_(?:\w+_)?(?:pass|password|passphrase)|ansible_(?:ssh_)?private_key", re.ASCII)
_AS_ROOT: Final = re.compile(r"ansible_(?:become|sudo|su)_\w+", re.ASCII)
_AS_OURS: Final = {
    "ansible_become_method": ("sudo", "ansible.builtin.sudo"),
    "ansible_become_user": ("root",),
    "ansible_ssh_executable": ("ssh", "/usr/bin/ssh"),
}
"""Values of these that ask for what the server does."""
_NOT_OURS: Final = (
    "proxyjump", "proxycommand", "bindaddress", "bindinterface", "certificatefile", "identityagent", "pkcs11provider",
)  # fmt: skip
"""Options of ssh, as ``ssh -G`` writes them, that lead through another machine or log in as the server does not."""
_CONNECTIONS: Final = frozenset({"ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh"})


@dataclass(frozen=True, kw_only=True)
class WantedHost:
    """A host to enrol. ``key_file`` None: the key of the command line. ``called``: by the inventory."""

    name: str
    called: str
    address: str
    port: int
    user: str
    gpus: str
    key_file: Path | None
    fingerprint: str | None
    labels: Labels = ()


def wanted_hosts(inventory: Mapping[str, InventoryHost]) -> list[WantedHost]:
    """One for each host of the inventory, by name.

    :raises InvalidInput: ``inventory.invalid`` with a reason for each host that cannot be meant
    """
    wanted: list[WantedHost] = []
    reasons: list[Reason] = []
    for inventory_name, host in inventory.items():
        try:
            wanted.append(_wanted(inventory_name, host.variables, host.reach))
        except InvalidInput as error:
            reasons.append(Reason(code=error.code, message=error.message, subjects=(inventory_name[:80],)))
    reasons += _shared(wanted, "name", lambda host: host.name)
    reasons += _shared(wanted, "address", lambda host: f"{host.address} port {host.port}")
    if reasons:
        bad = {subject for reason in reasons for subject in reason.subjects}
        raise InvalidInput(
            "inventory.invalid",
            f"{len(bad)} of {len(inventory)} hosts cannot be taken as they stand, nothing was done",
            hint="docs/howto/import-an-inventory.md names the variables that are read",
            reasons=tuple(reasons),
        )
    return sorted(wanted, key=lambda host: host.name)


def _shared(wanted: list[WantedHost], what: str, key: Callable[[WantedHost], str]) -> list[Reason]:
    counted = Counter(map(key, wanted))
    return [
        Reason(
            code="inventory.duplicate",
            message=f"they have one {what}, {value}",
            subjects=tuple(host.called for host in wanted if key(host) == value),
            count=number,
        )
        for value, number in counted.items()
        if number > 1
    ]


def _wanted(inventory_name: str, variables: Variables, reach: SshReach) -> WantedHost:
    _check_written(variables)
    _check_way(variables, reach)
    user = check_user(reach.ssh["user"][0])
    _check_login(variables, user)
    _check_settings(variables, reach, user)
    name = _text(variables, "vgpuctl_name") or _first_label(inventory_name)
    return WantedHost(
        name=_checked_name(name),
        called=inventory_name[:80],
        address=check_address(reach.ssh["hostname"][0]),
        port=int(reach.ssh["port"][0]),
        user=user,
        gpus=check_gpus(_text(variables, "vgpuctl_gpus") or "unused"),
        key_file=_key_file(reach),
        fingerprint=_text(variables, "vgpuctl_host_key_fingerprint"),
        labels=_labels(variables.get("vgpuctl_labels", {})),
    )


def _key_file(reach: SshReach) -> Path | None:
    keys = dict.fromkeys(reach.ssh.get("identityfile", ()))
    if len(keys) > 1:
        raise _unsupported(f"it is logged in to with {len(keys)} keys, the server has one for each host")
    return next(map(_key_path, keys), None)


def _key_path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise _invalid(
            "the key file", f"{text[:60]!a} is in somebody's home, and there is no such user here"
        ) from error


def _first_label(inventory_name: str) -> str:
    """``gpu-1`` of ``gpu-1.example.com``.

    :raises InvalidInput: ``inventory.unnamed``: an IP address has no label
    """
    try:
        ipaddress.ip_address(inventory_name)
    except ValueError:
        return inventory_name.split(".", maxsplit=1)[0]
    raise InvalidInput("inventory.unnamed", "an address is no name for a host", hint="set vgpuctl_name")


def _checked_name(name: str) -> str:
    """:raises InvalidInput: ``host.name_invalid``"""
    try:
        return check_name(name, what="host")
    except InvalidInput as error:
        raise InvalidInput(error.code, f"{error.message}; set vgpuctl_name", hint=error.hint) from error


def _check_written(variables: Variables) -> None:
    """What Ansible would say of these in many words.

    :raises InvalidInput: ``inventory.value_invalid``
    """
    for name in _TEXTS:
        if not (_is_template(variables.get(name)) or _is_encrypted(variables.get(name))):
            _text(variables, name)
    for name in _PORTS:
        if not (_is_template(variables.get(name)) or _is_encrypted(variables.get(name))):
            _check_port(name, 22 if variables.get(name) is None else variables[name])


def _check_way(variables: Variables, reach: SshReach) -> None:
    """:raises InvalidInput: ``inventory.unsupported``: this host is reached in a way that the server has not;
    ``host.address_invalid``; ``inventory.value_invalid``: neither Ansible nor ssh know what is meant"""
    connection = _text(variables, "ansible_connection") or "ssh"
    if connection not in _CONNECTIONS:
        raise _unsupported(f"ansible_connection is {connection[:40]!a}, hosts are reached over ssh")
    of_paramiko = [name for name in variables if name.startswith("ansible_paramiko_")]
    if of_paramiko and "paramiko" in connection:
        raise _unsupported(f"{of_paramiko[0][:60]} is for a connection that the server has not")
    if reach.host.startswith("-"):
        check_address(reach.host)
    if "hostname" not in reach.ssh:
        raise _not_understood(variables, reach.why)
    for option in _NOT_OURS:
        if option in reach.ssh:
            raise _unsupported(f"{_origin(variables, option)} {_MEANING.get(option, _OTHER_LOGIN)} ({option})")


_MEANING: Final = dict.fromkeys(
    ("proxyjump", "proxycommand"), "leads through another machine, the server reaches hosts directly"
) | dict.fromkeys(("bindaddress", "bindinterface"), "binds to an address of this machine, the server has its own")
_OTHER_LOGIN: Final = "logs in with more than a key file, the server has the key alone"


def _origin(variables: Variables, option: str) -> str:
    """The variables that may have set an option of ssh; Ansible has merged them all."""
    given = [name for name in _SSH_ARGUMENTS if variables.get(name)]
    naming = [name for name in given if option in str(variables[name]).lower()]
    return " and ".join(naming or given) or "ssh_args of ansible.cfg or ANSIBLE_SSH_ARGS"


def _check_login(variables: Variables, user: str) -> None:
    """:raises InvalidInput: ``inventory.unsupported``: the server has a key, and ``sudo`` that asks for nothing"""
    for name, value in variables.items():
        if value in (None, "") or (user == "root" and _AS_ROOT.fullmatch(name)):
            continue
        if _SECRET.fullmatch(name):
            raise _unsupported(f"{name} is set; the server logs in by a key file and sudo asks it for no password")
        if name in _AS_OURS and value not in _AS_OURS[name]:
            raise _unsupported(f"{name} is {value!a:.40}, the server takes {_AS_OURS[name][0]}")


def _check_settings(variables: Variables, reach: SshReach, user: str) -> None:
    """The same of what ansible.cfg says for hosts whose variables do not. :raises InvalidInput:
    ``inventory.unsupported``"""
    for setting, value in reach.settings.items():
        variable, called = SETTINGS[setting]
        if variable in variables or (user == "root" and _AS_ROOT.fullmatch(variable)):
            continue
        allowed = _AS_OURS.get(variable, sorted(_CONNECTIONS) if setting == "DEFAULT_TRANSPORT" else ())
        if value not in allowed:
            means = "ssh, a key file and sudo without a password are what the server has"
            raise _unsupported(f"{called} is {value!a:.40}; {means}")


def _not_understood(variables: Variables, why: str) -> InvalidInput:
    for name, value in variables.items():
        if name.startswith("ansible_") and _is_template(value):
            return _invalid(name, f"is a template that Ansible does not get to the end of: {why}")
        if name.startswith("ansible_") and _is_encrypted(value):
            return InvalidInput(
                "inventory.encrypted",
                f"{name} is encrypted: {why}",
                hint="add --vault-password-file FILE, or set ANSIBLE_VAULT_PASSWORD_FILE",
            )
    given = " and ".join(name for name in _SSH_ARGUMENTS if variables.get(name))
    return _invalid(given or "what says how it is reached", f"is not understood: {why}")


def _unsupported(why: str) -> InvalidInput:
    return InvalidInput("inventory.unsupported", why, hint="see docs/howto/import-an-inventory.md")


def _is_template(value: object) -> bool:
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def _is_encrypted(value: object) -> bool:
    return isinstance(value, dict) and "__ansible_vault" in value


def _text(variables: Variables, name: str) -> str | None:
    value = variables.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise _invalid(name, "is encrypted" if _is_encrypted(value) else "is not text")
    if _is_template(value):
        raise _invalid(name, "is a template, which ansible-inventory leaves as it is")
    return value


def _check_port(name: str, value: Any) -> None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise _invalid(name, "is not a TCP port")


def _labels(value: Any) -> Labels:
    """YAML makes numbers of some values; what they are as text is what was written."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _invalid("vgpuctl_labels", "is not a mapping")
    if not all(isinstance(item, str | int) and not isinstance(item, bool) for item in value.values()):
        raise _invalid("vgpuctl_labels", "has a value that is not text")
    return check_labels({key: str(item) for key, item in value.items()})


def _invalid(name: str, why: str) -> InvalidInput:
    return InvalidInput("inventory.value_invalid", f"{name} {why}", hint="write the value itself")
