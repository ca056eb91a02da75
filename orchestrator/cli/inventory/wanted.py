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

from orchestrator.cli import enrolment
from orchestrator.cli.inventory.reading import Variables
from orchestrator.core.errors import InvalidInput, Reason
from orchestrator.core.labels import Labels, check_labels
from orchestrator.core.names import check_name

_KEY_VARIABLES: Final = ("ansible_ssh_private_key_file", "ansible_private_key_file")
_ROUNDABOUT: Final = re.compile(r"proxy|(?:^|\s)-[JFW]", re.IGNORECASE)
_SSH_ARGUMENTS: Final = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
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


def wanted_hosts(inventory: Mapping[str, Variables]) -> list[WantedHost]:
    """One for each host of the inventory, by name.

    :raises InvalidInput: ``inventory.invalid`` with a reason for each host that cannot be meant
    """
    wanted: list[WantedHost] = []
    reasons: list[Reason] = []
    for inventory_name, variables in inventory.items():
        try:
            wanted.append(_wanted(inventory_name, variables))
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


def _wanted(inventory_name: str, variables: Variables) -> WantedHost:
    _check_way(variables)
    key_file = next((found for name in _KEY_VARIABLES if (found := _text(variables, name))), None)
    name = _text(variables, "vgpuctl_name") or _first_label(inventory_name)
    return WantedHost(
        name=check_name(name, what="host"),
        called=inventory_name[:80],
        address=enrolment.checked_address(_text(variables, "ansible_host") or inventory_name),
        port=_port(variables.get("ansible_port", 22)),
        user=enrolment.checked_user(_text(variables, "ansible_user") or "root"),
        gpus=enrolment.checked_gpus(_text(variables, "vgpuctl_gpus") or "unused"),
        key_file=None if key_file is None else _key_path(key_file),
        fingerprint=_text(variables, "vgpuctl_host_key_fingerprint"),
        labels=_labels(variables.get("vgpuctl_labels", {})),
    )


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


def _check_way(variables: Variables) -> None:
    """:raises InvalidInput: ``inventory.unsupported``: this host is reached in a way that the server has not"""
    connection = _text(variables, "ansible_connection") or "ssh"
    if connection not in _CONNECTIONS:
        raise _unsupported(f"ansible_connection is {connection[:40]!a}, hosts are reached over ssh")
    for name in _SSH_ARGUMENTS:
        if _ROUNDABOUT.search(_text(variables, name) or ""):
            raise _unsupported(f"{name} leads through another machine, the server reaches hosts directly")


def _unsupported(why: str) -> InvalidInput:
    return InvalidInput("inventory.unsupported", why, hint="see docs/howto/import-an-inventory.md")


def _text(variables: Variables, name: str) -> str | None:
    value = variables.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise _invalid(name, "is encrypted" if isinstance(value, dict) else "is not text")
    if "{{" in value or "{%" in value:
        raise _invalid(name, "is a template, which ansible-inventory leaves as it is")
    return value


def _port(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise _invalid("ansible_port", "is not a TCP port")
    return value


def _labels(value: Any) -> Labels:
    """YAML makes numbers of some values; what they are as text is what was written."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _invalid("vgpuctl_labels", "is not a mapping")
    if not all(isinstance(one, str | int) and not isinstance(one, bool) for one in value.values()):
        raise _invalid("vgpuctl_labels", "has a value that is not text")
    return check_labels({key: str(one) for key, one in value.items()})


def _invalid(name: str, why: str) -> InvalidInput:
    return InvalidInput("inventory.value_invalid", f"{name} {why}", hint="write the value itself")
