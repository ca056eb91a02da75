# SPDX-License-Identifier: Apache-2.0
"""Everything that a file names must be there, or be made by the file itself: said before anything is planned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.catalogue.quota_names import resolved_resource
from orchestrator.client.client import Client
from orchestrator.core.errors import Denied, NotFound, Reason
from orchestrator.core.hosts.pool import NO_POOL
from orchestrator.core.manifest import Existing, Manifest, ManifestVm
from orchestrator.core.names import closest, near
from orchestrator.core.security_groups import DEFAULT_GROUP
from orchestrator.core.vms.network import DEFAULT_NAME
from orchestrator.core.vms.volume import plain_name


def check_references(client: Client, wanted: Manifest, existing: Existing) -> None:
    """Of the VMs and networks that are not there yet, and of limits that are not set yet.

    :raises NotFound: ``manifest.unknown_name``, a reason for each name that is none
    """
    new = [vm for vm in wanted.vms if vm.key not in existing.vms]
    of_vms = (*_by_list(client, wanted, existing, new), *_asked_for(client, wanted, new)) if new else ()
    reasons = (
        *_limits(client, wanted, existing),
        *_owners(client, wanted, existing),
        *_groups(wanted, existing),
        *_leading(wanted, existing),
        *of_vms,
        *_pools(client, wanted, existing, new),
    )
    if reasons:
        raise NotFound(
            "manifest.unknown_name",
            f"{len(reasons)} names in the file are of nothing that exists",
            hint="correct them, or have the file make what they name; nothing was changed",
            reasons=reasons,
        )


def _limits(client: Client, wanted: Manifest, existing: Existing) -> Iterator[Reason]:
    """What a quota counts is a name as well; whether it is one, the types of the hosts say too."""
    limited = {(tenant, resource) for tenant, limits in existing.tenants.items() for resource in limits}
    new = [
        (tenant.name, resource)
        for tenant in wanted.tenants
        for resource, amount in tenant.quota
        if ":" in resource and amount is not None and (tenant.name, resource) not in limited
    ]
    if not new:
        return
    types = {str(profile["vgpu_type"]) for profile in client.profiles() if profile["vgpu_type"]}
    own = [*existing.offerings.values(), *(offering.offering for offering in wanted.offerings)]
    profiles = shipped_profiles().with_site(own)
    for tenant, resource in new:
        try:
            resolved_resource(resource, profiles, host_types=types)
        except NotFound as error:
            yield Reason(code=error.code, message=error.message, subjects=(f"tenant {tenant}",))


def _owners(client: Client, wanted: Manifest, existing: Existing) -> Iterator[Reason]:
    """Tenants of networks."""
    new = [
        network for network in wanted.networks if network.tenant is not None and network.key not in existing.networks
    ]
    if not new:
        return
    tenants = {str(tenant["name"]) for tenant in client.tenants()} | {tenant.name for tenant in wanted.tenants}
    for name in sorted({str(vm.tenant) for vm in new} - tenants):
        users = [f"network {vm.name}" for vm in new if vm.tenant == name]
        yield _unknown("tenant", name, users, near=tenants)


def _groups(wanted: Manifest, existing: Existing) -> Iterator[Reason]:
    """What security groups are on, and groups that their rules name."""
    vms = {*existing.vms, *(vm.key for vm in wanted.vms)}
    networks = {*existing.networks, *(network.key for network in wanted.networks)}
    groups = {*existing.groups, *(group.key for group in wanted.groups)}
    for group in wanted.groups:
        user = [f"security_group {group.key}"]
        named: tuple[tuple[str, set[str | None], set[str]], ...] = (
            ("VM", {use.vm for use in group.uses or ()}, vms),
            ("network", {use.network for use in group.uses or ()}, networks),
            ("security group", {rule.group for rule in group.rules or ()} - {DEFAULT_GROUP}, groups),
        )
        for what, names, keys in named:
            usable = {*_of_tenant(keys, group.tenant)}
            for name in sorted(name for name in names if name is not None and name not in usable):
                yield _unknown(what, name, user, near=usable)


def _leading(wanted: Manifest, existing: Existing) -> Iterator[Reason]:
    """VMs that floating addresses lead to, and networks that others of the same tenant are joined with."""
    vms = {*existing.vms, *(vm.key for vm in wanted.vms)}
    networks = {*existing.networks, *(network.key for network in wanted.networks)}
    for floating in wanted.floating:
        if floating.vm is not None and f"{floating.tenant}/{floating.vm}" not in vms:
            usable = {*_of_tenant(vms, floating.tenant)}
            yield _unknown("VM", floating.vm, [f"floating_address {floating.key}"], near=usable)
    for network in wanted.networks:
        usable = {*_of_tenant(networks, str(network.tenant))}
        for owner, _, name in (peer.partition("/") for peer in network.peers):
            if owner == network.tenant and name not in usable:
                yield _unknown("network", name, [f"network {network.key}"], near=usable)


def _by_list(client: Client, wanted: Manifest, existing: Existing, new: list[ManifestVm]) -> Iterator[Reason]:
    tenants = {str(tenant["name"]) for tenant in client.tenants()}
    tenants |= {tenant.name for tenant in wanted.tenants}
    for name in sorted({vm.tenant for vm in new} - tenants):
        yield _unknown("tenant", name, [_said(vm) for vm in new if vm.tenant == name], near=tenants)
    images = {*existing.images, *(image.name for image in wanted.images)}
    unknown = [vm for vm in new if images.isdisjoint({vm.image, f"{vm.tenant}/{vm.image}"})]
    for name in sorted({vm.image for vm in unknown}):
        yield _unknown("image", name, [_said(vm) for vm in unknown if vm.image == name], near=images)
    yield from _networks(wanted, existing, new)
    yield from _volumes(wanted, existing, new)


def _volumes(wanted: Manifest, existing: Existing, new: list[ManifestVm]) -> Iterator[Reason]:
    keys = {*existing.volumes, *(volume.key for volume in wanted.volumes)}
    for vm in new:
        for name in vm.volumes:
            if f"{vm.tenant}/{plain_name(name)}" not in keys:
                yield _unknown("volume", plain_name(name), [vm.key], near=tuple(_of_tenant(keys, vm.tenant)))


def _pools(client: Client, wanted: Manifest, existing: Existing, new: list[ManifestVm]) -> Iterator[Reason]:
    volumes = [volume for volume in wanted.volumes if volume.key not in existing.volumes]
    offerings = [made.offering for made in wanted.offerings if existing.offerings.get(made.name) != made.offering]
    users = [
        *((offering.pool, f"offering {offering.name}") for offering in offerings),
        *((vm.pool, _said(vm)) for vm in new),
        *((volume.pool, f"volume {volume.key}") for volume in volumes),
    ]
    for name in sorted({pool for pool, _ in users if pool not in {None, NO_POOL}}):
        yield from _refused(partial(client.pool, name), "pool", name, [user for pool, user in users if pool == name])


def _networks(wanted: Manifest, existing: Existing, new: list[ManifestVm]) -> Iterator[Reason]:
    """A VM's is its tenant's or the site's."""
    keys = {*existing.networks, *(network.key for network in wanted.networks)}
    usable = {vm.tenant: {DEFAULT_NAME, *_of_tenant(keys, vm.tenant)} for vm in new}
    for name in sorted({name for vm in new for name in vm.networks}):
        users = [vm for vm in new if name in vm.networks and name not in usable[vm.tenant]]
        if users:
            yield _unknown("network", name, [_said(vm) for vm in users], near=usable[users[0].tenant])


def _of_tenant(keys: Collection[str], tenant: str) -> Iterator[str]:
    for key in keys:
        owner, _, name = key.rpartition("/")
        if owner in {"", tenant}:
            yield name


def _asked_for(client: Client, wanted: Manifest, new: list[ManifestVm]) -> Iterator[Reason]:
    """Profiles have many spellings, and hosts may not be ours to know: the server says whether a name is one."""
    made = {offering.name for offering in wanted.offerings}
    for name in sorted({vm.profile for vm in new} - made):
        users = [_said(vm) for vm in new if vm.profile == name]
        yield from _refused(partial(client.profile, name), "profile", name, users)
    for name in sorted({vm.host for vm in new if vm.host is not None}):
        users = [_said(vm) for vm in new if vm.host == name]
        yield from _refused(partial(client.host, name), "host", name, users)
    for gpu, host in {(vm.gpu, vm.host): None for vm in new if vm.gpu is not None}:
        users = [_said(vm) for vm in new if (vm.gpu, vm.host) == (gpu, host)]
        yield from _refused(partial(_gpu, client, gpu, host), "GPU", gpu, users)


def _said(vm: ManifestVm) -> str:
    return f"vm {vm.key}"


def _gpu(client: Client, address: str, host: str | None) -> None:
    """:raises NotFound: ``gpu.unknown``, ``host.unknown``"""
    if host is not None:
        client.gpu(host, address)
        return
    known = [str(gpu["address"]) for gpu in client.gpus()]
    if address not in known:
        raise NotFound(
            "gpu.unknown", f"no host has a GPU {address}", hint=near(address, sorted({*known}), "vgpuctl gpu list")
        )


def _refused(ask: Callable[[], object], what: str, name: str, users: list[str]) -> Iterator[Reason]:
    try:
        ask()
    except NotFound as error:
        yield _unknown(what, name, users, hint=error.hint if "did you mean" in (error.hint or "") else None)
    except Denied:
        return


def _unknown(what: str, name: str, users: list[str], *, near: Collection[str] = (), hint: str | None = None) -> Reason:
    names_alike = closest(name, near)
    hint = f"did you mean {', '.join(names_alike)}?" if names_alike else hint
    message = f"no {what} is called {name[:63]!a}" + (f"; {hint}" if hint else "")
    return Reason(code=f"{what.lower().removeprefix('security ')}.unknown", message=message, subjects=tuple(users))
