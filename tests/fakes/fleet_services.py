# SPDX-License-Identifier: Apache-2.0
"""Hosts, GPUs, profiles, images and networks of the fake :class:`tests.fakes.world.World`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import islice

from orchestrator.catalogue.gpu_tables import tables_of
from orchestrator.core.advice.alike import CapacityRow, OneOfEach
from orchestrator.core.advice.explain import TenantExplanation, explain, for_tenant
from orchestrator.core.advice.gpu_map import EVERY_GPU, GpuFilter, GpuRow, gpu_map, own_gpus
from orchestrator.core.advice.overview import FleetUse, HostUse, RackUse, by_rack
from orchestrator.core.diff import Finding, Repair, Severity, StoredFinding
from orchestrator.core.drivers.matrix import version_key
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, NotFound
from orchestrator.core.hosts.bridges import Uplink, check_uplink
from orchestrator.core.hosts.host import HostCondition, HostState
from orchestrator.core.hosts.readiness import Requirement, requirements
from orchestrator.core.labels import Selector, changed_labels, selects
from orchestrator.core.names import check_name
from orchestrator.core.offerings.offering import Offering, vm_size
from orchestrator.core.overlay import NO_CHANGE, NewOvnNetwork, OvnNetworkChange
from orchestrator.core.placement.rules import named
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.placement.views import GpuView, HostView, Request
from orchestrator.core.tenancy.access import Tenants
from orchestrator.core.vms.image import Image, NewImage, stored_name
from orchestrator.core.vms.network import Network, own_name
from orchestrator.core.vms.vm import VmState
from orchestrator.services.hosts.gpus import place_of
from orchestrator.services.messages import (
    AddHost,
    GpuInfo,
    HostChange,
    HostInfo,
    HostKey,
    ProfileFilter,
    ProfileInfo,
    Started,
    TypeUse,
)
from orchestrator.services.vms.capacity import Named, Question
from orchestrator.store.pages import PageKey
from tests.fakes.cleaned import NoCleanings
from tests.fakes.readiness import READY
from tests.fakes.world import EPOCH, FINGERPRINT, GPU, PROFILE, World, gpu_snapshot, host_info


class Hosts:
    def __init__(self, world: World) -> None:
        self._world = world

    def scan(self, address: str, port: int) -> HostKey:
        return HostKey(type="ssh-ed25519", key="AAAA", fingerprint=FINGERPRINT)

    def add(self, request: AddHost) -> Started:
        check_name(request.name, what="host")
        if request.fingerprint != FINGERPRINT:
            raise Conflict("host.key_changed", "the host presents another key", hint="compare the fingerprints")
        if request.name in self._world.hosts:
            raise Conflict("host.exists", f"{request.name} is enrolled already")
        info = host_info(request.name)
        self._world.hosts[request.name] = replace(info, host=replace(info.host, state="enrolling"))

        def ready() -> None:
            self._world.hosts[request.name] = info

        return Started(operation=self._world.begin("add_host", request.name, None, ready), name=request.name)

    def remove(self, name: str) -> Started:
        self.get(name)
        if self._world.vms:
            raise Conflict("host.has_vms", f"{name} has VMs", hint="delete them first")

        def gone() -> None:
            del self._world.hosts[name]

        return Started(operation=self._world.begin("remove_host", name, None, gone), name=name)

    def upgrade_agent(self, name: str) -> Started:
        self.get(name)
        return Started(operation=self._world.begin("upgrade_agent", name, None, lambda: None), name=name)

    def list(self) -> tuple[HostInfo, ...]:
        return tuple(self._world.hosts.values())

    def page(
        self, selector: Selector, state: HostCondition | None, sort: str, after: PageKey | None, most: int
    ) -> tuple[tuple[tuple[HostInfo, object], ...], int]:
        """By name, however it is to be."""
        picked = [
            (info, name)
            for name, info in sorted(self._world.hosts.items())
            if selects(selector, info.host.labels)
            and (state in {None, info.host.state} or (state == "cordoned" and info.host.cordoned))
        ]
        return tuple(row for row in picked if after is None or row[1] > str(after[1]))[:most], len(picked)

    def counts(self) -> dict[tuple[HostState, bool], int]:
        return Counter((info.host.state, info.host.cordoned) for info in self._world.hosts.values())

    def get(self, name: str) -> HostInfo:
        if name not in self._world.hosts:
            raise NotFound("host.unknown", f"there is no host {name[:60]!a}", hint="'vgpuctl host list' shows them")
        return self._world.hosts[name]

    def _cordoned(self, name: str, cordoned: bool) -> HostInfo:
        info = self.get(name)
        self._world.hosts[name] = replace(info, host=replace(info.host, cordoned=cordoned))
        return self._world.hosts[name]

    def forget(self, name: str, *, confirm: str) -> HostInfo:
        info = self.get(name)
        if confirm != name:
            raise InvalidInput("host.not_confirmed", "giving up a host has to be confirmed with its name")
        self._world.hosts[name] = replace(info, host=replace(info.host, state="forgotten"))
        return self._world.hosts[name]

    def change(self, name: str, change: HostChange) -> HostInfo:
        info = self.get(name)
        labels = changed_labels(info.host.labels, change.labels)
        self._world.hosts[name] = replace(info, host=replace(info.host, labels=labels))
        return self._world.hosts[name]

    def cordon(self, name: str, reason: str | None = None) -> HostInfo:
        return self._cordoned(name, cordoned=True)

    def uncordon(self, name: str) -> HostInfo:
        return self._cordoned(name, cordoned=False)


class HostChecks:
    """The one at 192.0.2.99 has no driver."""

    def __init__(self, world: World) -> None:
        self._world = world

    def check_new(self, address: str, port: int, user: str, key: str, fingerprint: str) -> tuple[Requirement, ...]:
        if fingerprint != FINGERPRINT:
            raise Fatal("host.key_differs", "the host shows another key", hint="compare the fingerprints")
        return requirements(replace(READY, driver=None) if address == "192.0.2.99" else READY)

    def check(self, name: str) -> tuple[Requirement, ...]:
        if name not in self._world.hosts:
            raise NotFound("host.unknown", f"no host is called {name[:63]!a}", hint="'vgpuctl host list' shows them")
        return requirements(READY)


class Gpus(NoCleanings):
    def __init__(self, world: World) -> None:
        self._world = world

    def list(
        self, host: str | None, after: tuple[str, str] | None = None, most: int | None = None
    ) -> tuple[GpuInfo, ...]:
        infos = (self._info(name) for name in sorted(self._world.hosts) if host in {None, name})
        return tuple(islice((info for info in infos if after is None or place_of(info) > after), most))

    def _info(self, host: str) -> GpuInfo:
        names = tuple(f"{tenant}/{name}" for tenant, name in sorted(self._world.vms))
        use = TypeUse(name=PROFILE, framebuffer_mib=1024, max_instances=16, used=len(names), free=16 - len(names))
        cut = "time_sliced:1024" if names else None
        return GpuInfo(host=host, gpu=gpu_snapshot(), managed=True, state="healthy", cut=cut, types=(use,), vms=names)

    def get(self, host: str, address: str) -> GpuInfo:
        if host not in self._world.hosts or address != GPU:
            raise NotFound("gpu.unknown", f"{host[:60]!a} has no GPU {address}")
        return self._info(host)


class Profiles:
    def __init__(self, world: World) -> None:
        self._world = world

    def list(
        self, tenants: Collection[str] | None = None, only: ProfileFilter | None = None
    ) -> tuple[ProfileInfo, ...]:
        offering = Offering(name="t4-small", kind="time_sliced", vgpu_type=PROFILE, description="A small share of a T4")
        free = 16 - len(self._world.vms)
        hosts, size = tuple(self._world.hosts), vm_size(offering, 2048)
        found = ProfileInfo(
            offering=offering, hosts=hosts, host_count=len(hosts), free=free, framebuffer_mib=2048, size=size
        )  # fmt: skip
        wanted = only or ProfileFilter()
        fits = wanted.kind in {None, offering.kind} and wanted.host in {None, *hosts} and bool(free or not wanted.free)
        fits = fits and bool(hosts or not wanted.available)
        return (found,) if fits and (wanted.model or "").lower() in "tesla t4" else ()

    def get(self, name: str, tenants: Collection[str] | None = None) -> ProfileInfo:
        if name not in {"t4-small", PROFILE}:
            raise NotFound("profile.unknown", f"no profile is called {name[:80]!a}", hint="did you mean t4-small?")
        return self.list()[0]


class Images:
    def __init__(self, world: World) -> None:
        self._world = world

    def add(self, wanted: NewImage, tenant: str | None = None, *, shared: bool = False) -> Image:
        check_name(wanted.name, what="image")
        source = wanted.source
        if isinstance(source, str) and not source.startswith(("/", "https://", "http://")):
            raise InvalidInput("image.source_invalid", f"{source[:60]!a} is neither a file nor an http(s) URL")
        image = Image(
            name=stored_name(tenant, wanted.name), sha256=wanted.sha256 or "0" * 64, format=wanted.format or "qcow2",
            size_bytes=30 * 2**20, virtual_size_bytes=2**28, created_at=EPOCH, shared=shared,
        )  # fmt: skip
        self._world.images[image.name] = image
        return image

    def set_guest_driver(self, name: str, version: str | None, tenant: str | None = None) -> Image:
        if version is not None:
            version_key(version)
        image = replace(self.get(name, tenant), guest_driver=version)
        self._world.images[image.name] = image
        return image

    def describe(
        self, name: str, tenant: str | None, description: str | None, labels: Mapping[str, str | None]
    ) -> Image:
        before = self.get(name, tenant)
        self._world.images[before.name] = replace(before, about=before.about.changed(description, labels))
        return self._world.images[before.name]

    def list(self, tenants: Collection[str] | None = None) -> tuple[Image, ...]:
        images = self._world.images.values()
        return tuple(one for one in images if tenants is None or any(map(one.is_for, tenants)))

    def get(self, name: str, tenant: str | None = None) -> Image:
        found = self._world.images.get(f"{tenant}/{name}") or self._world.images.get(name)
        if found is None:
            raise NotFound("image.unknown", f"there is no image {name[:60]!a}", hint="'vgpuctl image list' shows them")
        return found

    def remove(self, name: str, tenant: str | None = None) -> None:
        image = self.get(name, tenant)
        if any(vm.spec.image == image.name for vm in self._world.vms.values()):
            raise Conflict("image.in_use", f"VMs are made on {name}")
        del self._world.images[image.name]


class Networks:
    def __init__(self, world: World) -> None:
        self._world = world

    def add(self, name: str, subnet: str | None, tenant: str | None = None, *, operator: bool = True) -> Network:
        del operator
        check_name(name, what="network")
        key = name if tenant is None else own_name(tenant, name)
        self._world.networks[key] = Network(name=key, subnet=subnet or "10.88.0.0/24", shared=tenant is None)
        return self._world.networks[key]

    def add_bridged(
        self, name: str, uplink: Uplink, dhcp_servers: tuple[str, ...] = (), tenant: str | None = None
    ) -> Network:
        check_uplink(uplink, dhcp_servers)
        key = name if tenant is None else own_name(tenant, name)
        self._world.networks[key] = Network(name=key, shared=tenant is None, uplink=uplink, dhcp_servers=dhcp_servers)
        return self._world.networks[key]

    def add_overlay(self, name: str, overlay: NewOvnNetwork, tenant: str) -> Network:
        key = own_name(tenant, name)
        self._world.networks[key] = Network(name=key, overlay=overlay.checked(key))
        return self._world.networks[key]

    def get(self, name: str, *, everybody: bool) -> Network:
        if name not in self._world.networks or not (everybody or self._world.networks[name].shared):
            raise NotFound("network.unknown", f"no network is called {name[:60]!a}")
        return self._world.networks[name]

    def usable(self, tenant: str, name: str) -> Network:
        own = self._world.networks.get(own_name(tenant, name))
        return self.get(name, everybody=False) if own is None else own

    def share(self, name: str, *, shared: bool) -> Network:
        self._world.networks[name] = replace(self.get(name, everybody=True), shared=shared)
        return self._world.networks[name]

    def change(
        self,
        name: str,
        tenant: str | None,
        description: str | None,
        labels: Mapping[str, str | None],
        change: OvnNetworkChange = NO_CHANGE,
    ) -> Network:
        there = self.get(name, everybody=True) if tenant is None else self.usable(tenant, name)
        overlay = None if there.overlay is None else change.made_of(there.overlay)
        about = there.about.changed(description, labels)
        self._world.networks[there.name] = replace(there, about=about, overlay=overlay)
        return self._world.networks[there.name]

    def delete(self, name: str, tenant: str | None = None, *, operator: bool = True) -> None:
        del operator
        found = self.get(name, everybody=True) if tenant is None else self.usable(tenant, name)
        del self._world.networks[found.name]

    def list(self, tenants: tuple[str, ...] | None = None) -> tuple[Network, ...]:
        found = self._world.networks.values()
        return tuple(one for one in found if tenants is None or one.shared or one.tenant in tenants)


class Capacity:
    """The real engine over a fleet of one T4 that has no VMs yet."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _fleet(self) -> tuple[HostView, ...]:
        gpu = GpuView(gpu_id=GPU, geometry=tables_of(gpu_snapshot()).now, numa=0)
        return (HostView(host_id="gpu1", name="gpu1", free_vcpus=64, free_memory_mib=65536, gpus=(gpu,)),)

    def _request(self, question: Question) -> Request:
        if question.profile not in {"t4-small", PROFILE}:
            raise NotFound("profile.unknown", f"no profile is called {question.profile[:80]!a}")
        offering = Offering(name="asked", kind="time_sliced", vgpu_type=PROFILE)
        needs = tuple(named.needs_of(Wanted(vm_id="what-if", vm=question, offering=offering)))
        return Request(
            vm_id="what-if", profile=PROFILE, vcpus=question.vcpus or 2, memory_mib=question.memory_mib or 4096,
            tenant=question.tenant, count=question.count, needs=needs,
        )  # fmt: skip

    def capacity(self, question: Question) -> tuple[CapacityRow, ...]:
        request = self._request(replace(question, profile=PROFILE) if question.each else question)
        return (CapacityRow(request.profile, OneOfEach.among(self._fleet()).room(request)),)

    def explain(self, question: Question) -> Named:
        return Named(explanation=explain(self._request(question), self._fleet()), names={})

    def gpu_map(
        self, after: tuple[str, str] | None = None, most: int | None = None, only: GpuFilter = EVERY_GPU
    ) -> tuple[GpuRow, ...]:
        every = filter(only.picks, gpu_map(self._fleet()))
        rows = [row for row in every if after is None or (row.host or "", row.gpu) > after]
        return tuple(rows[:most])

    def how_many_gpus(self, only: GpuFilter) -> int:
        return len(self.gpu_map(only=only))

    def racks(self, only: GpuFilter = EVERY_GPU) -> tuple[RackUse, ...]:
        return by_rack([HostUse("gpu1", None, "ready", *self.use().of_host(only))])

    def use(self) -> FleetUse:
        return FleetUse.of(self.gpu_map())

    def vm_counts(self, tenants: Tenants) -> dict[tuple[str, VmState], int]:
        mine = ((key[0], vm.state) for key, vm in self._world.vms.items() if tenants is None or key[0] in tenants)
        return Counter(mine)

    def room(self, question: Question, tenant: str) -> tuple[CapacityRow, ...]:
        return self.capacity(question)

    def explain_for_tenant(self, question: Question) -> TenantExplanation:
        return for_tenant(self.explain(question).explanation)

    def own_gpu_map(self, tenants: Collection[str]) -> tuple[GpuRow, ...]:
        return own_gpus(self.gpu_map(), tenants)


class Findings:
    """Every VM that an operator must look at was stopped from outside; a repair changes nothing here."""

    def __init__(self, world: World) -> None:
        self._world = world

    def list(self, *, host: str | None, cleared: bool = False) -> tuple[StoredFinding, ...]:
        if host is not None and host not in self._world.hosts:
            raise NotFound("host.unknown", f"there is no host {host[:60]!a}", hint="'vgpuctl host list' shows them")
        found = []
        for vm in self._world.vms.values():
            if vm.spec.name == "later":
                finding = Finding(
                    code="vm.not_running", severity="warning", host=vm.host, subject=f"VM default/{vm.spec.name}",
                    vm=vm.id, whose="ours", wanted="running", observed="shut off",
                    repair=Repair(kind="start_vm", automatic=False), reason="it is started",
                )  # fmt: skip
                kept = StoredFinding(
                    finding=finding, first_seen=EPOCH, last_seen=EPOCH, cleared_at=EPOCH if cleared else None,
                    operation=None,
                )  # fmt: skip
                found.append(kept)
        return tuple(found)

    def counts(self) -> dict[str, int]:
        return dict(Counter(stored.finding.code for stored in self.list(host=None)))

    def by_severity(self) -> dict[Severity, int]:
        return Counter(stored.finding.severity for stored in self.list(host=None))

    def gpu_faults(self) -> dict[str, str]:
        return {}

    def observe(self, host: str | None) -> tuple[StoredFinding, ...]:
        return self.list(host=host)

    def repair(self, *, host: str | None) -> tuple[str, ...]:
        return tuple(one.finding.code for one in self.list(host=host))
