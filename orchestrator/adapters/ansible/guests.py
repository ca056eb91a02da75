# SPDX-License-Identifier: Apache-2.0
"""Implements ports/guests.Guests with our playbooks, through the streams of the hosts' agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event

from orchestrator.adapters.ansible.connection import (
    GUEST,
    bundle_variables,
    environment,
    guest_inventory,
    guest_ssh_arguments,
)
from orchestrator.adapters.ansible.guest_door import GuestDoor, guest_door
from orchestrator.adapters.ansible.guest_outcome import PREFIX, guest_error_of, guest_facts_of, results_of, versions_of
from orchestrator.adapters.ansible.outcome import RunReport
from orchestrator.adapters.ansible.play import Play, run_play, scratch_space
from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.cuda_releases import cuda_releases
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.guest import GUEST_USER, Guest, GuestRun, WantedRoles
from orchestrator.core.host import Host
from orchestrator.ports.clock import Clock
from orchestrator.ports.host import ByteStream

SSH_PORT = 22
LONGEST_CONTACT_S = 120
LONGEST_RUN_S = 7200
"""A toolkit of some GB is fetched and unpacked, and modules are built."""


@dataclass(frozen=True, kw_only=True)
class AnsibleGuests:
    """``state``: the control plane's directory. ``open_tcp``: ports/host.HostLink's. ``user``: whom runs log in as.

    ``credential``: writes the private key of a run, with its certificate beside it, into the given file: by VM, run and
    how long it has to be good for, in seconds."""

    state: Path
    playbooks: Path
    credential: Callable[[Path, str, str, float], None]
    open_tcp: Callable[[Host, str, int], ByteStream]
    clock: Clock
    user: str = GUEST_USER
    leaving: Event = field(default_factory=Event, repr=False)

    def reach(self, guest: Guest, stop: Callable[[], bool]) -> GuestRun:
        """Log in and do nothing."""
        return self._run("reach-guest.yml", guest, lambda _scratch: {}, lambda _title: None, stop, LONGEST_CONTACT_S)

    def provision(
        self, guest: Guest, wanted: WantedRoles, progress: Callable[[str], None], stop: Callable[[], bool]
    ) -> GuestRun:
        """Run the roles; their output is kept in ``ansible/vm-ID.log`` of the state directory."""
        variables: dict[str, object] = {"vgpuctl_guest_roles": [f"{PREFIX}{role}" for role in wanted.roles]}
        variables |= {f"vgpuctl_guest_{name}": value for name, value in wanted.settings.items()}
        if wanted.driver is not None:
            variables["vgpuctl_guest_driver_bundle"] = bundle_variables(wanted.driver)
        if "guest_cuda" in wanted.roles:
            releases = cuda_releases(shipped_profiles().catalogue.driver_matrix, wanted.cuda)
            variables["vgpuctl_guest_cuda_toolkits"] = [asdict(one) for one in releases]
            variables["vgpuctl_guest_cuda_cudnn"] = wanted.cudnn or ""
            variables["vgpuctl_guest_cuda_cudnn_packages"] = [bundle_variables(one) for one in wanted.cudnn_packages]
        if "guest_k8s_node" in wanted.roles:
            variables["vgpuctl_guest_k8s_node_labels"] = dict(wanted.labels)

        def given(scratch: Path) -> dict[str, object]:
            return variables | _secret_files(scratch, wanted.secrets)

        return self._run("provision-guest.yml", guest, given, progress, stop, LONGEST_RUN_S)

    def _run(
        self,
        playbook: str,
        guest: Guest,
        variables: Callable[[Path], dict[str, object]],
        progress: Callable[[str], None],
        stop: Callable[[], bool],
        timeout_s: int,
    ) -> GuestRun:
        directory = self.state / "ansible"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with scratch_space(directory, guest.vm) as (scratch, control):
            known_hosts = scratch / "known_hosts"
            known_hosts.write_text("" if guest.host_key is None else f"{GUEST} {guest.host_key}\n", encoding="utf-8")
            key = scratch / "key"
            self.credential(key, guest.vm, guest.run, timeout_s)
            with guest_door(control / "door", lambda: self.open_tcp(guest.host, guest.vm, SSH_PORT)) as door:
                ssh = guest_ssh_arguments(guest, known_hosts, control, door.path)
                play = Play(
                    playbook=self.playbooks / playbook,
                    inventory=guest_inventory(key, self.user, ssh, variables(scratch)),
                    environment=environment(scratch, self.playbooks / "ansible.cfg"),
                    scratch=scratch,
                    timeout_s=timeout_s,
                )
                report = run_play(play, progress, lambda: self.leaving.is_set() or stop())
            shown = _shown_key(known_hosts)
        (directory / f"vm-{guest.vm}.log").write_text(report.output, encoding="utf-8")
        return GuestRun(
            host_key=shown,
            results=results_of(report, at=self.clock.now(), operation=guest.run),
            facts=guest_facts_of(report),
            versions=versions_of(report),
            error=_error(report, guest, door),
        )

    def leave(self) -> None:
        """This process ends: running plays are ended."""
        self.leaving.set()


def _secret_files(scratch: Path, secrets: Mapping[str, str]) -> dict[str, object]:
    """Written for the run alone. Variables name the files: a secret is in no inventory and no event."""
    written: dict[str, object] = {}
    for name, text in secrets.items():
        file = scratch / f"secret-{name}"
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(text, encoding="utf-8")
        written[f"vgpuctl_guest_{name}_file"] = str(file)
    return written


def _error(report: RunReport, guest: Guest, door: GuestDoor) -> VgpuctlError | None:
    """What kept ssh from its connection says more than ssh can."""
    error = guest_error_of(report, guest.name, GUEST)
    return door.refused if error is not None and error.code == "guest.unreachable" and door.refused else error


def _shown_key(known_hosts: Path) -> str | None:
    """``type base64`` of the only line."""
    words = known_hosts.read_text(encoding="utf-8").split()
    return f"{words[1]} {words[2]}" if len(words) >= 3 else None
