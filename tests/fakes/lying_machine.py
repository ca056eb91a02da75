# SPDX-License-Identifier: Apache-2.0
"""A machine whose Python answers every module with what its owner likes. What it is sent is kept."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import asyncssh
from cryptography.fernet import Fernet

from orchestrator.adapters.ansible.configurator import AnsibleConfigurator
from orchestrator.adapters.ansible.guests import AnsibleGuests
from orchestrator.adapters.ansible.ssh_proxy import TcpStream
from orchestrator.adapters.state.clock import SystemClock
from orchestrator.adapters.state.guest_keys import GuestKeys
from orchestrator.adapters.state.ovn_authority import OvnAuthority
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.guest.guest import Guest, GuestRun, WantedRoles
from tests.fakes.loopback_guest import guest_on_loopback
from tests.unit.adapters.ansible.hosts import host

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
AGENT = b"agent agent agent"
VM = "11111111-1111-4111-8111-111111111111"
KEYS = GuestKeys(b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ=", SystemClock())
SIGN = partial(OvnAuthority(Fernet.generate_key(), SystemClock()).sign, "host")
"""A site that signs for its hosts."""
PLAUSIBLE: Mapping[str, Any] = {
    "changed": False, "rc": 0, "stdout": "1", "stdout_lines": ["1"], "stat": {"exists": True, "isdir": False},
    "matched": 1, "results": [], "state": "file",
    "host": {
        "architecture": "x86_64",
        "systemd": True, "python": {"version": [3, 11], "libvirt": True}, "libvirt_listens": True, "family": "debian",
        "site": None, "nvidia": [], "volumes": [], "packages": [], "program_sha256": None,
    },
}  # fmt: skip
"""What a role that asks finds good enough to go on."""


@dataclass
class LyingMachine:
    """``answer``: of every module. ``home``: where its user's files are."""

    home: Path
    answer: Mapping[str, Any]
    _heard: list[bytes] = field(default_factory=list)

    def python(self, command: str, given: bytes) -> bytes:
        self._heard += [command.encode(), given]
        return json.dumps(self.answer).encode()

    def heard(self) -> bytes:
        """All that it was told and sent, files too."""
        return b"\n".join([*self._heard, *(path.read_bytes() for path in self.home.rglob("*") if path.is_file())])


def lying(facts: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A plausible answer with these facts in it."""
    return {**PLAUSIBLE, "ansible_facts": {"kernel": "6.1", "os_family": "Debian", **facts}, **more}


def provision_guest(
    scratch: Path, roles: tuple[str, ...], facts: Mapping[str, Any], *, confined: bool = True
) -> tuple[GuestRun, bytes]:
    """A run of roles in a guest that lies, and what the guest heard."""
    machine = LyingMachine(scratch / "machine", lying(facts))
    machine.home.mkdir()
    allowed = scratch / "authorized_keys"
    allowed.write_text(
        KEYS.authority(VM).replace('principals="vgpuctl"', f'principals="vgpuctl,{getpass.getuser()}"') + "\n"
    )
    guest = Guest(vm=VM, name="default/train", host=host(), host_key=None, run="22222222-2222-4222-8222-222222222222")
    with guest_on_loopback(machine.home, allowed, python=machine.python) as port:
        guests = AnsibleGuests(
            state=scratch / "state", playbooks=PLAYBOOKS, credential=KEYS.credential, clock=SystemClock(),
            open_tcp=lambda _host, _vm, _port: TcpStream("127.0.0.1", port), user=getpass.getuser(), confined=confined,
        )  # fmt: skip
        run = guests.provision(guest, WantedRoles(roles=roles), lambda _title: None, lambda: False)
    return run, machine.heard()


@contextmanager
def host_that_lies(scratch: Path, machine: LyingMachine) -> Iterator[tuple[AnsibleConfigurator, Any]]:
    """What enrols hosts, and a host that is ``machine``."""
    key, allowed = scratch / "provisioning_key", scratch / "authorized_keys"
    own, host_key = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
    own.write_private_key(key)
    own.write_public_key(allowed)
    key.chmod(0o600)
    machine.home.mkdir()
    words = host_key.export_public_key().decode().split()
    with guest_on_loopback(machine.home, allowed, host_key, machine.python) as port:
        yield AnsibleConfigurator(
            site="site", state=scratch / "state", playbooks=PLAYBOOKS, provisioning_key=lambda _host: key,
            authorized_keys=("ssh-ed25519 QUJD",), build_agent=_agent, sign=SIGN,
        ), replace(host(address="127.0.0.1", port=port, host_key=f"{words[0]} {words[1]}"))  # fmt: skip


def _agent(path: Path) -> str:
    path.write_bytes(AGENT)
    return sha256(AGENT).hexdigest()


def take_host(
    scratch: Path, facts: Mapping[str, Any], *, confined: bool = True, **more: Any
) -> tuple[VgpuctlError | None, bytes]:
    """The agent put on a host that lies, and what the host heard. ``more``: beside facts in its answers."""
    machine = LyingMachine(scratch / "machine", lying(facts, **more))
    with host_that_lies(scratch, machine) as (configurator, target):
        try:
            replace(configurator, confined=confined).install_agent(target, (), lambda _title: None)
        except VgpuctlError as error:
            return error, machine.heard()
    return None, machine.heard()
