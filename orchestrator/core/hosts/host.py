# SPDX-License-Identifier: Apache-2.0
"""A machine with GPUs that we manage."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.gpu.health_states import GpuHealth
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.hosts.mig_layout import MigLayout
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.labels import Labels

HostState = Literal[
    "enrolling", "ready", "unreachable", "quarantined", "provisioning", "removing", "failed", "forgotten"
]  # fmt: skip
"""``provisioning``: its driver, or what that needs, is being put there; no VM starts.
``quarantined``: its SSH host key or machine id changed; nothing is done there until it is enrolled again.
``forgotten``: given up for good by an operator; its VMs are lost, and nothing is ever done there."""
HostCondition = Literal[HostState, "cordoned"]
"""What a list of hosts is filtered by: a host is cordoned in whichever state."""
LOST: Final[frozenset[HostState]] = frozenset({"unreachable", "quarantined", "failed", "forgotten"})
"""States in which nothing is known of its VMs."""

RestoredState = Literal["unseen", "seen"]
"""Of a host whose database was restored. ``unseen``: nobody has looked at it since, so which epoch it obeys is not
known. ``seen``: what it has may be newer than the database: nothing there is repaired or taken back by itself."""
UNSETTLED: Final = frozenset(
    {
        "vm.running", "vm.not_running", "vm.domain_missing", "vm.volume_missing", "vm.device_differs",
        "vm.not_in_ledger", "vm.lease_in_doubt",
    }
)  # fmt: skip
"""Codes of findings about VMs that the database knows: while one stands on a host whose database was restored, a person
has to say what is to be so."""

_DNS_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", re.ASCII)
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,31}", re.ASCII)

MAX_OVERCOMMIT: Final = 64.0
"""Most that anything of a host may be promised, against what there is of it."""


@dataclass(frozen=True, kw_only=True)
class Cordon:
    """Who cordoned a host, when (seconds since the epoch, UTC) and why, in his words."""

    at: float
    """When."""
    by: str
    """Login name, token or uid of whoever cordoned it."""
    reason: str | None = None
    """Why, for people."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A host as the database holds it. Secrets (private keys) are files of the state directory, not here."""

    name: str
    """What it is called."""
    address: str
    """Host name or IP address that SSH reaches it at."""
    port: int
    """TCP port of SSH."""
    provisioning_user: str
    """Whom Ansible logs in as (with sudo when not root)."""
    host_key: str
    """The pinned SSH host key, ``<type> <base64>``."""
    state: HostState
    """Where it stands."""
    state_reason: str | None
    """Why it is in that state."""
    cordoned: bool
    """No new VM is placed on it."""
    machine_id: str | None
    """Of the machine's /etc/machine-id."""
    epoch: int
    """Fencing epoch of this site on this host (core/actions/host_actions.Token)."""
    managed_gpus: tuple[str, ...]
    """PCI addresses of the GPUs the operator gave us at ``host add``; no other GPU is ever touched."""
    last_seen_at: float | None
    """When it was observed last, in seconds since the epoch, UTC; None: never."""
    vcpu_overcommit: float | None = None
    """vCPUs that may be claimed for each that it has; None: as the site's setting says."""
    memory_overcommit: float | None = None
    """The same for memory, what the host keeps for itself left out."""
    allow_unconfined: bool = False
    """Whether new VMs may be put there although nothing keeps its QEMUs apart but their account."""
    labels: Labels = ()
    """Values by key."""
    cordoned_for: str | None = None
    """What of ours it is cordoned for, in words; None with ``cordoned``: a person said so."""
    cordon: Cordon | None = None
    """Of a person; None: nobody cordoned it, or did so before this was kept."""
    mig_layouts: tuple[MigLayout, ...] = ()
    """Of those managed GPUs that are kept for one; by address. No VM gets a part of them."""
    pinnable_cpus: tuple[int, ...] = ()
    """Kept for VMs that have theirs alone; VMs that share run on the others. None of them: VMs share all."""
    rdma_nics: tuple[str, ...] = ()
    """PCI addresses of network cards whose virtual functions VMs may have; no other card is ever touched."""
    gpu_health: tuple[tuple[str, GpuHealth], ...] = ()
    """Of those managed GPUs of which anything is remembered, by address."""
    restored: RestoredState | None = None
    """Since its database was restored. None: what it has is settled, or nothing was ever restored."""

    def health_of(self, address: str) -> GpuHealth | None:
        """Of a GPU, or of one of its virtual functions. None: nothing is remembered of it; it is healthy."""
        functions = (pair for _, health in self.gpu_health for pair in health.functions)
        return next((health for known, health in (*self.gpu_health, *functions) if known == address), None)

    @property
    def closed_functions(self) -> frozenset[str]:
        """PCI addresses of virtual functions of its GPUs that no new vGPU is put on."""
        return frozenset(function for _, health in self.gpu_health for function in health.closed_functions)


def new_host(name: str, address: str, port: int, *, provisioning_user: str, host_key: str) -> Host:
    """One that nobody has looked at yet."""
    return Host(
        name=name,
        address=address,
        port=port,
        provisioning_user=provisioning_user,
        host_key=host_key,
        state="enrolling",
        state_reason=None,
        cordoned=False,
        machine_id=None,
        epoch=1,
        managed_gpus=(),
        last_seen_at=None,
    )


def seen_after_restore(host: Host, snapshot: HostSnapshot) -> Host:
    """As it is obeyed from its first observation after a restore on: above every epoch that it has seen. No clock is
    asked, so one that was wrong locks nobody out."""
    if host.restored != "unseen":
        return host
    epoch = snapshot.epoch + 1 if snapshot.epoch else host.epoch  # an older agent does not tell
    return replace(host, epoch=epoch, restored="seen")


def check_is_the_machine(host: Host, snapshot: HostSnapshot | None = None) -> None:
    """Before anything is done there, or believed of it. ``snapshot``: what answers now.

    :raises Conflict: ``host.quarantined``"""
    other = snapshot is not None and host.machine_id not in {None, snapshot.machine_id}
    if other or host.state == "quarantined":
        raise Conflict(
            "host.quarantined",
            "another machine or key answers at the host's address: nothing is done there",
            hint="the operator finds out why, gives the host up and adds it again",
        )


def check_address(text: str) -> str:
    """The canonical form of an IP address without a zone, or a DNS name in lower case (``_`` occurs in those of hosts
    files): nothing that could be an option or syntax to ssh. Whether it exists, connecting will tell.

    :raises InvalidInput: ``host.address_invalid``
    """
    try:
        if "%" not in text:
            return str(ipaddress.ip_address(text))
    except ValueError:
        if _DNS_NAME.fullmatch(text) and ".." not in text:
            return text.lower()
    raise InvalidInput(
        "host.address_invalid",
        f"{ascii(text)[:60]} is not an address",
        hint="give an IP address (without a zone) or a DNS name alone; --user and --port say the rest",
    )


def check_user(text: str) -> str:
    """An account as ``useradd`` and directories have them: ``ops``, ``jane.doe``, ``Administrator``. Never an option
    for ssh.

    :raises InvalidInput: ``host.user_invalid``
    """
    if _USER.fullmatch(text) is None:
        raise InvalidInput(
            "host.user_invalid",
            f"{ascii(text)[:40]} is not a user name",
            hint="up to 32 letters, digits, '.', '_' and '-', the first no '.' and no '-'",
        )
    return text


def check_port(port: int) -> int:
    """:raises InvalidInput: ``port.out_of_range``"""
    if not 1 <= port <= 65535:
        raise InvalidInput("port.out_of_range", f"{port} is not a TCP port", hint="1 to 65535")
    return port


def check_gpus(text: str) -> str:
    """Which GPUs of a host we get: ``all``, ``unused``, or PCI addresses with commas in their canonical form.

    :raises InvalidInput: ``pci.address_invalid``
    """
    return text if text in {"all", "unused"} else ",".join(map(parse_pci_address, text.split(",")))
