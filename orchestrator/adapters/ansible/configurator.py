# SPDX-License-Identifier: Apache-2.0
"""Implements ports/host.Configurator with our playbooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.adapters.ansible.connection import (
    bundle_variables,
    environment,
    inventory,
    known_hosts_line,
    reach_host,
    ssh_arguments,
)
from orchestrator.adapters.ansible.outcome import RunReport, error_of
from orchestrator.adapters.ansible.play import Play, PlaybookJob, run_play, scratch_space
from orchestrator.adapters.ansible.ssh_proxy import ssh_proxy_to, tcp_stream
from orchestrator.core.drivers.host_drivers import DueReboot, HostDrivers
from orchestrator.core.errors import Retryable, Unknown
from orchestrator.core.hosts.features import HostFeature
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.readiness import HostGpuFact, HostOvnFact, HostReadinessFacts
from orchestrator.core.ovn import HostInOvn
from orchestrator.ports.overlay import SignedCertificate

Text = Annotated[str, Field(max_length=4096)]
MAX_GPUS: Final = 64


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Gpu(_Answer):
    address: Annotated[str, Field(max_length=20)]
    driver: Text | None
    iommu_group: bool
    takes_types: bool


class _Python(_Answer):
    version: Annotated[tuple[int, ...], Field(max_length=2)]
    libvirt: bool


class _Ovn(_Answer):
    version: Annotated[str, Field(pattern=r"^[0-9.]{1,40}$")] | None
    remote: Text | None
    connected: bool


class _Readiness(_Answer):
    os: Text
    os_id: Text
    kernel: Text
    architecture: Text
    command_line: Text
    amd: bool
    iommu_groups: int
    modules: Annotated[tuple[Text, ...], Field(max_length=64)]
    kvm: bool
    systemd: bool
    libvirt_listens: bool
    libvirt: Annotated[str, Field(pattern=r"^[0-9.]{1,40}$")] | None
    qemu: Annotated[str, Field(pattern=r"^[0-9.]{1,40}$")] | None
    python: _Python
    driver: Text | None
    headers: bool
    secure_boot: bool | None
    confinement: Text | None
    features: tuple[HostFeature, ...]
    gpus: Annotated[tuple[_Gpu, ...], Field(max_length=MAX_GPUS)]
    storage_free_bytes: Annotated[int, Field(ge=0, le=2**62)]
    nvswitches: bool
    switches_lack: Annotated[tuple[Text, ...], Field(max_length=8)]
    fabric_manager: Annotated[str, Field(pattern=r"^[0-9.]{1,40}$")] | None
    dcgm: Annotated[str, Field(pattern=r"^[0-9.]{1,40}$")] | None
    ovn: _Ovn
    huge_pages_2m: Annotated[int, Field(ge=0, le=2**40)]
    huge_pages_1g: Annotated[int, Field(ge=0, le=2**40)]
    large_pages_mounted: bool


def facts_of(returned: object, host: str) -> HostReadinessFacts:
    """:raises Unknown: ``host.check_failed``"""
    try:
        readiness = _Readiness.model_validate(returned)
    except ValidationError as error:
        raise Unknown(
            "host.check_failed",
            f"{host} did not say what it has",
            details=str(error)[:2000],
            hint="nothing was changed; check it again, and look at ansible/NAME.log in the state directory",
        ) from error
    values = readiness.model_dump(exclude={"python", "gpus", "ovn"})
    return HostReadinessFacts(
        **values,
        python=readiness.python.version,
        python_libvirt=readiness.python.libvirt,
        ovn=HostOvnFact(**readiness.ovn.model_dump()),
        gpus=tuple(HostGpuFact(**gpu.model_dump()) for gpu in readiness.gpus),
    )


MAX_WORDS: Final = 400


def due_reboot_of(returned: object, host: str) -> DueReboot | None:
    """``returned``: what the module returned; None: the host does not reboot.

    :raises Unknown: ``host.provisioning_unknown``: it is something else
    """
    if returned is None:
        return None
    why, boot_id = (returned.get("why"), returned.get("boot_id")) if isinstance(returned, dict) else (None, None)
    if not isinstance(why, str) or not isinstance(boot_id, str) or not boot_id:
        raise Unknown("host.provisioning_unknown", f"{host} said of its reboot what nobody knows")
    return DueReboot(why=" ".join(why.split())[:MAX_WORDS], boot_id=boot_id[:MAX_WORDS])


def request_of(returned: object, host: str) -> str:
    """What the host wants signed (PKCS #10, PEM).

    :raises Unknown: ``host.provisioning_unknown``: it is something else
    """
    if not isinstance(returned, str) or len(returned) > MAX_REQUEST:
        raise Unknown("host.provisioning_unknown", f"{host} wants something signed that nobody knows")
    return returned


MAX_REQUEST: Final = 4096

LONGEST_RUN_S = 900
"""A package manager behind a slow mirror needs minutes; more than this is a host that hangs."""

LONGEST_PROVISIONING_S = 3600
"""A bundle of some 400 MB travels, modules are built for the kernel, and the host may reboot in between."""


@dataclass(frozen=True, kw_only=True)
class AnsibleConfigurator:
    """``state``: the control plane's directory, where runs have their scratch space and outputs are kept.

    ``provisioning_key``: the file with the private key for a host, mode 0600.
    ``authorized_keys``: public keys (``type base64``) of the controllers that reach the agent.
    ``build_agent``: writes the agent as one file to the given path; gives its SHA-256, which the host checks.
    ``sign``: a certificate for OVN of a host of that name, for the key of a request.
    ``confined``: runs are in a sandbox.
    """

    site: str
    state: Path
    playbooks: Path
    provisioning_key: Callable[[Host], Path]
    authorized_keys: tuple[str, ...]
    build_agent: Callable[[Path], str]
    sign: Callable[[str, str], SignedCertificate]
    confined: bool = True
    leaving: Event = field(default_factory=Event, repr=False)

    def leave(self) -> None:
        """This process ends: running plays are ended and none begins. Both are raised as what may be tried again."""
        self.leaving.set()

    def install_agent(
        self, host: Host, gpus: tuple[str, ...], progress: Callable[[str], None], *, take_over: bool = False
    ) -> None:
        """``gpus``: PCI addresses that must be there on a fresh host; none when the choice is made later.

        :raises Conflict: ``host.other_site`` unless ``take_over``, ``host.no_such_gpu``
        """
        directory = self._directory()
        package = directory / "vgpuctl-agent.pyz"
        digest = self.build_agent(package)
        variables = {
            "vgpuctl_agent_site": self.site,
            "vgpuctl_agent_package": str(package),
            "vgpuctl_agent_sha256": digest,
            "vgpuctl_agent_epoch": host.epoch,
            "vgpuctl_agent_authorized_keys": list(self.authorized_keys),
            "vgpuctl_agent_take_over": take_over,
            "vgpuctl_agent_gpus": list(gpus),
        }
        job = PlaybookJob(playbook="install-agent.yml", timeout_s=LONGEST_RUN_S, variables=variables, files=(package,))
        self._run(job, host, progress)

    def remove_agent(self, host: Host, progress: Callable[[str], None]) -> None:
        """:raises Conflict: ``host.has_vms``, ``host.other_site``"""
        variables = {"vgpuctl_agent_site": self.site}
        self._run(
            PlaybookJob(playbook="remove-agent.yml", timeout_s=LONGEST_RUN_S, variables=variables), host, progress
        )

    def provision(self, host: Host, wanted: HostDrivers, progress: Callable[[str], None]) -> DueReboot | None:
        """:raises Conflict: ``driver.module_busy``; :raises Fatal: ``driver.…``: see outcome.py"""
        fabric = wanted.fabric_manager
        variables = {
            "vgpuctl_provision_base": wanted.base,
            "vgpuctl_nvidia_host_reboot": wanted.reboot,
            "vgpuctl_nvidia_host_driver": bundle_variables(wanted.driver),
            "vgpuctl_nvidia_host_fabric_manager": {} if fabric is None else bundle_variables(fabric),
        }
        job = PlaybookJob(
            playbook="provision-host.yml",
            timeout_s=LONGEST_PROVISIONING_S,
            variables=variables,
            files=tuple(Path(bundle.path) for bundle in (wanted.driver, fabric) if bundle is not None),
        )
        report = self._run(job, host, progress)
        return due_reboot_of(report.returned.get("reboot"), host.name)

    def join_ovn(self, host: Host, wanted: HostInOvn, progress: Callable[[str], None]) -> None:
        """In two runs: nothing inside of one reaches who signs."""
        first = self._ovn(host, wanted, progress, {"vgpuctl_ovn_certificate_request_only": True})
        signed = self.sign(host.name, request_of(first.returned.get("request"), host.name))
        self._ovn(host, wanted, progress, {"vgpuctl_ovn_certificate_signed": asdict(signed)})

    def ovn_changes(self, host: Host, wanted: HostInOvn) -> tuple[str, ...]:
        """Titles of the tasks that would change something."""
        report = self._ovn(host, wanted, lambda _title: None, {}, check=True)
        return tuple(task.task for task in report.tasks if task.changed)

    def _ovn(
        self, host: Host, wanted: HostInOvn, progress: Callable[[str], None], more: dict[str, object],
        *, check: bool = False,
    ) -> RunReport:  # fmt: skip
        variables = {
            "vgpuctl_host_ovn_name": host.name,
            "vgpuctl_host_ovn_central": list(wanted.central),
            "vgpuctl_host_ovn_network": wanted.network,
            "vgpuctl_host_ovn_mappings": dict(wanted.mappings),
            "vgpuctl_host_ovn_gateway": wanted.gateway,
            **more,
        }
        job = PlaybookJob(playbook="join-ovn.yml", timeout_s=LONGEST_RUN_S, variables=variables, check=check)
        return self._run(job, host, progress)

    def inspect(self, host: Host, key: str | None) -> HostReadinessFacts:
        """What the host has of what it needs; ``key``: the provisioning key of one that is not enrolled.

        :raises Unknown: ``host.check_failed``: it answered with something else
        """
        report = self._run(
            PlaybookJob(playbook="check-host.yml", timeout_s=LONGEST_RUN_S), host, lambda _title: None, key
        )
        return facts_of(report.returned.get("readiness"), host.name)

    def _directory(self) -> Path:
        directory = self.state / "ansible"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return directory

    def _run(self, job: PlaybookJob, host: Host, progress: Callable[[str], None], key: str | None = None) -> RunReport:
        """``key``: the provisioning key; None: it is kept."""
        if self.leaving.is_set():
            raise Retryable("host.provisioning_parked", "this server is stopping", hint="the next one takes it up")
        directory = self._directory()
        with scratch_space(directory, host.name) as (scratch, control):
            known_hosts = scratch / "known_hosts"
            known_hosts.write_text(known_hosts_line(host), encoding="utf-8")
            key_file = self.provisioning_key(host) if key is None else _key_file(scratch, key)
            with ssh_proxy_to(control / "proxy", lambda: tcp_stream(host.address, host.port)) as proxy:
                play = Play(
                    playbook=self.playbooks / job.playbook,
                    inventory=inventory(host.name),
                    variables=reach_host(host, key_file, ssh_arguments(host, known_hosts, proxy.path))
                    | job.given(scratch),
                    environment=environment(scratch, self.playbooks / "ansible.cfg"),
                    scratch=scratch,
                    readable=(key_file, *job.files),
                    writable=(control,),
                    timeout_s=job.timeout_s,
                    confined=self.confined,
                    check=job.check,
                )
                report = run_play(play, progress, self.leaving.is_set)
        (directory / f"{host.name}.log").write_text(report.output, encoding="utf-8")
        error = proxy.explained(error_of(report, host.name))
        if error is not None:
            raise error
        return report


def _key_file(scratch: Path, text: str) -> Path:
    """ssh reads keys from files; this one goes with the run."""
    path = scratch / "key"
    path.touch(mode=0o600)
    path.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
    return path
