# SPDX-License-Identifier: Apache-2.0
"""What the server has, in the words of core/manifest.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from orchestrator.cli.uploading import image_key, image_left_out
from orchestrator.client.client import Client
from orchestrator.client.connection import Json
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.labels import About, Labels
from orchestrator.core.manifest import (
    Existing,
    ExistingVm,
    Manifest,
    ManifestVm,
    WantedFloating,
    WantedGroup,
    WantedVolume,
)
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.overlay import NewOvnNetwork, router_of
from orchestrator.core.security_groups import NamedUse, SecurityRule
from orchestrator.core.vms.lease import parse_moment
from orchestrator.core.vms.network import WantedNetwork
from orchestrator.core.vms.vm import VmShape


def observe(client: Client, wanted: Manifest) -> Existing:
    """Everything that a file may speak of; of tenants only those it names, for others may not be ours to know."""
    named = {tenant.name for tenant in wanted.tenants}
    tenants = {tenant["name"]: tenant for tenant in client.tenants() if tenant["name"] in named} if named else {}
    networks = {network.key: (network, answer) for answer in client.networks() for network in [_network(answer)]}
    images = {image_key(image): image for image in client.images()}
    groups = {f"{group['tenant']}/{group['name']}": group for group in client.security_groups()}
    floating = [_floating(answer) for answer in client.floating_addresses()]
    volumes = {f"{volume['tenant']}/{volume['name']}": volume for volume in client.volumes()}
    return Existing(
        tenants={name: {line["resource"]: line["limit"] for line in client.quota(name)} for name in tenants},
        offerings={offering["name"]: offering_of(offering) for offering in client.offerings()},
        networks={key: network for key, (network, _) in networks.items()},
        images={key: image["sha256"] for key, image in images.items()},
        volumes={key: _volume(volume) for key, volume in volumes.items()},
        groups={key: _group(group) for key, group in groups.items()},
        floating={address.key: address for address in floating},
        vms={f"{vm['tenant']}/{vm['name']}": _vm(vm) for vm in client.vms()},
        abouts={
            **{("tenant", key): about_of(tenant) for key, tenant in tenants.items()},
            **{("network", key): about_of(answer) for key, (_, answer) in networks.items()},
            **{("security_group", key): about_of(group) for key, group in groups.items()},
            **{("image", key): about_of(image) for key, image in images.items()},
            **{("volume", key): about_of(volume) for key, volume in volumes.items()},
        },
    )


def with_images(client: Client, wanted: Manifest, existing: Existing) -> Manifest:
    """The same, where each VM has an image: of one that names none its own, or what ``create-vm`` would take.

    :raises InvalidInput: ``image.none``, ``image.choose``; :raises NotFound: what its disk is to be a copy of
    """
    coming = [image.name for image in wanted.images]

    def of(vm: ManifestVm) -> str:
        its = existing.vms.get(vm.key)
        if its is not None:
            return its.vm.image
        return image_left_out(client, vm.tenant, vm.from_snapshot, vm.from_backup, coming=coming)

    return replace(wanted, vms=tuple(vm if vm.image else replace(vm, image=of(vm)) for vm in wanted.vms))


def about_of(thing: Mapping[str, Any]) -> About:
    """What people say of a tenant, a network, an image or a volume."""
    return About(description=thing["description"], labels=tuple(sorted(thing["labels"].items())))


def _network(network: Json) -> WantedNetwork:
    bridge, vlan = network["bridge"], network["vlan"]
    over_hosts = network["kind"] in {"ovn", "provider"}
    return WantedNetwork(
        name=network["name"],
        subnet=None if over_hosts else network["subnet"],
        tenant=network["tenant"],
        uplink=None if bridge is None else Uplink(bridge=bridge, vlan=vlan),
        dhcp_servers=tuple(network["dhcp_servers"]),
        overlay=_overlay(network) if over_hosts else None,
        out=network["out"],
        peers=tuple(f"{peer['tenant']}/{peer['name']}" for peer in network["peers"] if peer["state"] != "offered"),
        leads_out=network["kind"] == "provider",
    )


def _overlay(network: Json) -> NewOvnNetwork:
    subnets = (network["subnet"], *network["more_subnets"])
    dns = tuple(network["dns_servers"])
    return NewOvnNetwork(
        subnets=subnets, mtu=network["mtu"], dns=() if dns == (router_of(subnets[0]),) else dns,
        search=tuple(network["search_domains"]), dhcp=tuple(sorted(network["dhcp_options"].items())),
        flow_log=network["flow_log"],
    )  # fmt: skip


def _group(group: Json) -> WantedGroup:
    rules = tuple(SecurityRule(**rule) for rule in group["rules"])
    return WantedGroup(
        name=group["name"], tenant=group["tenant"], rules=rules, uses=tuple(NamedUse(**use) for use in group["uses"])
    )


def _floating(floating: Json) -> WantedFloating:
    return WantedFloating(**{member.name: floating[member.name] for member in fields(WantedFloating)})


def _volume(volume: Json) -> WantedVolume:
    members = {**volume, "encrypted": volume.get("encryption", "none") != "none"}  # older servers do not say
    return WantedVolume(**{member.name: members[member.name] for member in fields(WantedVolume)})


def _vm(vm: Json) -> ExistingVm:
    shape = {member.name: vm[member.name] for member in fields(VmShape) if member.name not in {"host", "gpu"}}
    shape |= {"ssh_keys": tuple(vm["ssh_keys"]), "volumes": tuple(vm["volumes"])}
    shape["more_networks"] = tuple(vm["more_networks"])
    labels = tuple(sorted(vm["labels"].items()))
    wanted = ManifestVm(
        **shape,
        labels=labels,
        addresses=_addresses(vm),
        running=True,
        has_user_data=vm["has_user_data"],
        from_snapshot=vm.get("from_snapshot"),
        from_backup=vm.get("from_backup"),
        protected=vm.get("protected", False),
    )
    return ExistingVm(
        vm=wanted,
        state=vm["state"],
        on_host=vm["host"],
        label=vm["label"],
        created_at=parse_moment(vm["created_at"], field="created_at"),
        lease_end=None if vm["lease_end"] is None else parse_moment(vm["lease_end"], field="lease_end"),
    )


def _addresses(vm: Json) -> Labels:
    cards = vm["cards"]
    own = ((card["network"], ",".join(filter(None, (card["address"], card["address6"])))) for card in cards)
    return tuple(sorted((network, addresses) for network, addresses in own if addresses))


def request_of(offering: Offering, *, look_up: bool) -> dict[str, object]:
    """What the API is asked. ``look_up``: whether the names it has must be in the tables."""
    values = asdict(offering)
    del values["origin"]
    lists = {"gpu_models": list(offering.gpu_models), "provision": list(offering.provision)}
    return {**values, **lists, "hosts": dict(offering.hosts), "unlisted": not look_up}


def offering_of(answer: Json) -> Offering:
    """What the API says of an offering of the site."""
    return Offering.from_fields({**answer, "origin": "site", "hosts": tuple(sorted(answer["hosts"].items()))})
