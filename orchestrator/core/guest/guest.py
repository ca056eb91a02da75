# SPDX-License-Identifier: Apache-2.0
"""What was put into a VM's guest, and what the guest then said of itself. Its words are believed by nobody but people:
nothing is decided by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.drivers.host_drivers import DriverFile
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.guest.settings import SettingValue
from orchestrator.core.hosts.host import Host

GUEST_USER: Final = "vgpuctl"
"""The account that runs have in guests."""

VERSIONS: Final = ("cuda_toolkit", "cudnn", "docker", "container_toolkit", "containerd", "kubelet", "device_plugin")
"""Members of :class:`GuestFacts` that a role tells of what it has installed."""

RoleState = Literal["ok", "changed", "failed"]
"""``ok``: everything was there already."""


@dataclass(frozen=True, kw_only=True)
class RoleResult:
    """One role as it was run last."""

    role: str
    """Its name."""
    state: RoleState
    """``ok``: everything was there already."""
    tasks_ok: int
    """How many of its tasks ended well."""
    tasks_changed: int
    """How many of these changed something."""
    failed_task: str | None
    """Title of the task that failed; None: none did."""
    at: float
    """When the run ended, in seconds since the epoch."""
    operation: str
    """Id of the operation that works on it; None: none."""


@dataclass(frozen=True, kw_only=True)
class GuestRecord:
    """What the database keeps of a VM's guest; it goes with the VM."""

    vm: str
    host_key: str | None
    """The SSH host key that the guest showed first, ``type base64``; another one is not talked to."""
    results: tuple[RoleResult, ...] = ()
    """One for each role that was ever run, in the order in which they were run last."""
    facts: GuestFacts = field(default_factory=GuestFacts)


@dataclass(frozen=True, kw_only=True)
class Guest:
    """A guest as a run reaches it: through the agent of its VM's host, or by its floating address; with a key that is
    made for the run."""

    vm: str
    name: str
    """``tenant/name``, for people alone."""
    host: Host
    host_key: str | None
    """None: this is the first contact."""
    run: str
    """Id of the operation; the key's certificate names it."""


@dataclass(frozen=True, kw_only=True)
class WantedRoles:
    """What is to be run. ``driver``: the bundle that the role guest_driver installs from; None: it is not run.

    ``cuda``: the toolkit that is locked, as the tables call it; None: none is. ``cudnn``: the version that is locked;
    ``cudnn_packages``: the operator's bundles of it, of which a guest takes the one for it. ``settings`` and
    ``secrets``: of core/guest/settings.py, by name. ``labels``: of core/tenancy/node_labels.py."""

    roles: tuple[str, ...]
    driver: DriverFile | None = None
    cuda: str | None = None
    cudnn: str | None = None
    cudnn_packages: tuple[DriverFile, ...] = ()
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GuestRun:
    """How a run ended. ``error``: why it did not come to its end; what was done until then is told all the same."""

    host_key: str | None
    results: tuple[RoleResult, ...] = ()
    facts: GuestFacts | None = None
    """None: the role that asks was not run."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of :data:`VERSIONS`, told by the roles that were run."""
    error: VgpuctlError | None = field(default=None)


def secret_of(vm_id: str) -> str:
    """Id of the secret that a run in the VM's guest is given, all in one: JSON by name."""
    return f"guest.{vm_id}"


def with_run(record: GuestRecord, run: GuestRun) -> GuestRecord:
    """What is known after a run."""
    ran = {result.role for result in run.results}
    facts = record.facts if run.facts is None else run.facts
    # guest_check looks for these, too; of the rest it knows nothing.
    checked = () if run.facts is None else ("cuda_toolkit", "cudnn")
    kept = {name: getattr(record.facts, name) for name in VERSIONS if name not in checked}
    return GuestRecord(
        vm=record.vm,
        host_key=record.host_key or run.host_key,
        results=(*(result for result in record.results if result.role not in ran), *run.results),
        facts=replace(facts, **{**kept, **run.versions}),
    )
