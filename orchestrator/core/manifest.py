# SPDX-License-Identifier: Apache-2.0
"""A file of wanted tenants, offerings, networks, images, volumes and VMs, what exists of them, and a change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from orchestrator.core.labels import About, Labels, WantedAbout
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.security_groups import NamedUse, SecurityRule
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.core.vms.network import WantedNetwork
from orchestrator.core.vms.vm import VmShape

Kind = Literal["tenant", "offering", "floating_address", "network", "security_group", "image", "volume", "vm"]
Action = Literal["add", "set", "extend", "start", "stop", "delete", "refuse"]
"""``refuse``: it exists and differs in what cannot be changed, or is not there and would not be created."""

BUSY = frozenset({"creating", "adopting", "starting", "stopping", "moving", "deleting"})
PROTECTED: Final = "protected"
OFF = frozenset({"stopped", "stopping"})


@dataclass(frozen=True, kw_only=True)
class WantedTenant:
    name: str
    quota: tuple[tuple[str, int | None], ...] = ()
    """Limits by resource, as core/tenancy/quota counts; None: there is to be none. Those not named stay as they are."""


@dataclass(frozen=True, kw_only=True)
class WantedOffering:
    offering: Offering
    look_up: bool = field(default=True, compare=False)
    """Whether the names it has must be in the tables."""

    @property
    def name(self) -> str:
        return self.offering.name


@dataclass(frozen=True, kw_only=True)
class WantedImage:
    name: str
    source: str = field(compare=False)
    """Where it is taken from when it is not there yet; what was taken from elsewhere is as good."""
    sha256: str | None = None
    """None: any content under this name will do."""


@dataclass(frozen=True, kw_only=True)
class WantedVolume:
    name: str
    tenant: str
    size_bytes: int
    pool: str | None = None
    """None: as its tenant's policy has it."""
    encrypted: bool = False

    @property
    def key(self) -> str:
        """``tenant/name``."""
        return f"{self.tenant}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class WantedGroup:
    """A security group, as a file says it and of one that exists. None: as it is."""

    name: str
    tenant: str
    rules: tuple[SecurityRule, ...] | None = None
    uses: tuple[NamedUse, ...] | None = None

    @property
    def key(self) -> str:
        """``tenant/name``."""
        return f"{self.tenant}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class WantedFloating:
    """A floating address, as a file says it and of one that exists."""

    address: str
    """IPv4."""
    tenant: str
    network: str | None = None
    """Provider network that it is of; None: the only one."""
    vm: str | None = None
    """Whom it leads to; None, of a file: as it is."""
    vm_network: str | None = None
    """Of the VM's card; None, of a file: the first that it can lead to."""

    @property
    def key(self) -> str:
        """``tenant/address``."""
        return f"{self.tenant}/{self.address}"


@dataclass(frozen=True, kw_only=True)
class ManifestVm(VmShape):
    running: bool
    has_user_data: bool
    end: WantedEnd = field(default_factory=WantedEnd)
    """Of its lease, at least; a duration counts from when the VM was made, so that it means the same every time."""
    labels: Labels = ()
    """Of a wanted one: those it names; a VM that exists may have more."""
    addresses: Labels = ()
    """By networks of kind ovn; of a wanted one those that it chooses."""
    from_snapshot: str | None = None
    """``VM/SNAPSHOT`` that its disk is a copy of; None, of a wanted one: of any."""
    from_backup: str | None = None
    """Id of the backup that its disk was made of, of a wanted one also how that begins; None, of a wanted one: of any.
    """
    protected: bool | None = None
    """Whether it is refused to delete it; None, of a wanted one: as it is."""
    user_data: str | None = field(default=None, compare=False, repr=False)
    """The text; unknown of a VM that exists, for the server never shows it."""

    @property
    def key(self) -> str:
        """``tenant/name``."""
        return f"{self.tenant}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class ExistingVm:
    """A VM as it exists. ``vm.host`` is where it was wanted to be, if it was."""

    vm: ManifestVm
    state: str
    on_host: str | None
    """None: not ours to know."""
    label: str | None
    created_at: float = 0.0
    lease_end: float | None = None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything of one file. ``label`` marks the VMs it makes, so that they alone may be pruned."""

    label: str | None
    tenants: tuple[WantedTenant, ...] = ()
    offerings: tuple[WantedOffering, ...] = ()
    networks: tuple[WantedNetwork, ...] = ()
    images: tuple[WantedImage, ...] = ()
    volumes: tuple[WantedVolume, ...] = ()
    vms: tuple[ManifestVm, ...] = ()
    groups: tuple[WantedGroup, ...] = ()
    floating: tuple[WantedFloating, ...] = ()
    abouts: Mapping[tuple[Kind, str], WantedAbout] = field(default_factory=dict)
    """What is said of tenants, networks, images and data volumes, by their keys."""


@dataclass(frozen=True, kw_only=True)
class Existing:
    """What exists: limits of tenants, offerings of the site, networks by their keys, digests by name, and by
    ``tenant/name`` VMs and data volumes."""

    networks: Mapping[str, WantedNetwork]
    images: Mapping[str, str]
    vms: Mapping[str, ExistingVm]
    tenants: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    offerings: Mapping[str, Offering] = field(default_factory=dict)
    volumes: Mapping[str, WantedVolume] = field(default_factory=dict)
    groups: Mapping[str, WantedGroup] = field(default_factory=dict)
    floating: Mapping[str, WantedFloating] = field(default_factory=dict)
    abouts: Mapping[tuple[Kind, str], About] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """One value that is not as wanted."""

    field: str
    there: str | None
    """None: the object does not exist."""
    wanted: str | None
    """None: the object is to go."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing to do, or to refuse."""

    kind: Kind
    name: str
    """``tenant/name`` for a VM."""
    action: Action
    fields: tuple[FieldChange, ...]
    reason: str | None = None
    """Why what is not there yet would be refused."""


def listed(things: Iterable[object] | None) -> str:
    """In one line, for people."""
    return "; ".join(sorted(map(str, things or ()))) or "none"
