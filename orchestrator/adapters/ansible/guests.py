# SPDX-License-Identifier: Apache-2.0
"""Implements ports/guests.Guests with our playbooks, through the streams of the hosts' agents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event

from orchestrator.adapters.ansible.connection import (
    GUEST,
    bundle_variables,
    environment,
    guest_ssh_arguments,
    inventory,
    reach_guest,
)
from orchestrator.adapters.ansible.guest_outcome import (
    GUIDE,
    PREFIX,
    guest_error_of,
    guest_facts_of,
    results_of,
    versions_of,
)
from orchestrator.adapters.ansible.play import Play, PlaybookJob, run_play, scratch_space
from orchestrator.adapters.ansible.ssh_proxy import ssh_proxy_to
from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.drivers.matrix import cuda_releases
from orchestrator.core.errors import InvalidInput
from orchestrator.core.guest.guest import GUEST_USER, Guest, GuestRun, WantedRoles
from orchestrator.core.hosts.host import Host
from orchestrator.ports.clock import Clock
from orchestrator.ports.host import ByteStream

SSH_PORT = 22
LONGEST_CONTACT_S = 120
LONGEST_SILENCE_S = 1800
"""One task of a role, which tells nothing until it ends: a toolkit is fetched, modules are built."""
LONGEST_RUN_S = 7200
"""A toolkit of some GB is fetched and unpacked, and modules are built."""


@dataclass(frozen=True, kw_only=True)
class AnsibleGuests:
    """``state``: the control plane's directory. ``open_tcp``: by host, VM's id and port. ``user``: whom runs log in as.

    ``credential``: writes the private key of a run, with its certificate beside it, into the given file: by VM, run and
    how long it has to be good for, in seconds. ``confined``: runs are in a sandbox."""

    state: Path
    playbooks: Path
    credential: Callable[[Path, str, str, float], None]
    open_tcp: Callable[[Host, str, int], ByteStream]
    clock: Clock
    user: str = GUEST_USER
    confined: bool = True
    leaving: Event = field(default_factory=Event, repr=False)

    def reach(self, guest: Guest, stop: Callable[[], bool]) -> GuestRun:
        """Log in and do nothing."""
        job = PlaybookJob(playbook="reach-guest.yml", timeout_s=LONGEST_CONTACT_S)
        return self._run(job, guest, lambda _title: None, stop)

    def provision(
        self, guest: Guest, wanted: WantedRoles, progress: Callable[[str], None], stop: Callable[[], bool]
    ) -> GuestRun:
        """Run the roles; their output is kept in ``ansible/vm-ID.log`` of the state directory.

        :raises InvalidInput: ``guest.role_unknown``: there is none of that name beside the playbooks
        """
        variables: dict[str, object] = {"vgpuctl_guest_roles": [self._role(role) for role in wanted.roles]}
        variables |= {f"vgpuctl_guest_{name}": value for name, value in wanted.settings.items()}
        if wanted.driver is not None:
            variables["vgpuctl_guest_driver_bundle"] = bundle_variables(wanted.driver)
        if "guest_cuda" in wanted.roles:
            releases = cuda_releases(shipped_profiles().catalogue.driver_matrix, wanted.cuda)
            variables["vgpuctl_guest_cuda_toolkits"] = [asdict(release) for release in releases]
            variables["vgpuctl_guest_cuda_cudnn"] = wanted.cudnn or ""
            variables["vgpuctl_guest_cuda_cudnn_packages"] = [
                bundle_variables(package) for package in wanted.cudnn_packages
            ]
        if "guest_k8s_node" in wanted.roles:
            variables["vgpuctl_guest_k8s_node_labels"] = dict(wanted.labels)

        bundles = (*wanted.cudnn_packages, *(() if wanted.driver is None else (wanted.driver,)))
        job = PlaybookJob(
            playbook="provision-guest.yml",
            timeout_s=LONGEST_RUN_S,
            variables=variables,
            files=tuple(Path(bundle.path) for bundle in bundles),
            secrets={f"vgpuctl_guest_{name}_file": text for name, text in wanted.secrets.items()},
        )
        return self._run(job, guest, progress, stop)

    def _role(self, role: str) -> str:
        """Its directory's name."""
        name = f"{PREFIX}{role}"
        if name not in {path.name for path in (self.playbooks / "roles").iterdir()}:
            raise InvalidInput("guest.role_unknown", f"there is no role {role[:60]!a}", hint=f"{GUIDE} has all of them")
        return name

    def _run(
        self, job: PlaybookJob, guest: Guest, progress: Callable[[str], None], stop: Callable[[], bool]
    ) -> GuestRun:
        directory = self.state / "ansible"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with scratch_space(directory, guest.vm) as (scratch, control):
            known_hosts = scratch / "known_hosts"
            known_hosts.write_text("" if guest.host_key is None else f"{GUEST} {guest.host_key}\n", encoding="utf-8")
            key = scratch / "key"
            self.credential(key, guest.vm, guest.run, job.timeout_s)
            with ssh_proxy_to(control / "proxy", lambda: self.open_tcp(guest.host, guest.vm, SSH_PORT)) as proxy:
                ssh = guest_ssh_arguments(guest, known_hosts, proxy.path)
                play = Play(
                    playbook=self.playbooks / job.playbook,
                    inventory=inventory(GUEST),
                    variables=reach_guest(key, self.user, ssh) | job.given(scratch),
                    environment=environment(scratch, self.playbooks / "ansible.cfg"),
                    scratch=scratch,
                    readable=job.files,
                    writable=(control,),
                    timeout_s=job.timeout_s,
                    silent_s=LONGEST_SILENCE_S,
                    confined=self.confined,
                )
                report = run_play(play, progress, lambda: self.leaving.is_set() or stop())
            shown = _shown_key(known_hosts)
        (directory / f"vm-{guest.vm}.log").write_text(report.output, encoding="utf-8")
        return GuestRun(
            host_key=shown,
            results=results_of(report, at=self.clock.now(), operation=guest.run),
            facts=guest_facts_of(report),
            versions=versions_of(report),
            error=proxy.explained(guest_error_of(report, guest.name, GUEST)),
        )

    def leave(self) -> None:
        """This process ends: running plays are ended."""
        self.leaving.set()


def _shown_key(known_hosts: Path) -> str | None:
    """``type base64`` of the only line."""
    words = known_hosts.read_text(encoding="utf-8").split()
    return f"{words[1]} {words[2]}" if len(words) >= 3 else None
