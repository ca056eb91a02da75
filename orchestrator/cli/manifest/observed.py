# SPDX-License-Identifier: Apache-2.0
"""What the server has, in the words of core/manifest.py."""

from __future__ import annotations

from dataclasses import fields

from orchestrator.cli.offerings import offering_of
from orchestrator.cli.uploading import image_key
from orchestrator.client.client import Client
from orchestrator.client.connection import Json
from orchestrator.core.bridges import Uplink
from orchestrator.core.lease import parse_moment
from orchestrator.core.manifest import Existing, ExistingVm, Manifest, ManifestVm
from orchestrator.core.vm import VmShape
from orchestrator.core.wanted_network import WantedNetwork


def observe(client: Client, wanted: Manifest) -> Existing:
    """Everything that a file may speak of; of tenants only those it names, for others may not be ours to know."""
    named = {tenant.name for tenant in wanted.tenants}
    known = named & {str(tenant["name"]) for tenant in client.tenants()} if named else set()
    return Existing(
        tenants={name: {line["resource"]: line["limit"] for line in client.quota(name)} for name in known},
        offerings={offering["name"]: offering_of(offering) for offering in client.offerings()},
        networks={one.key: one for one in map(_network, client.networks())},
        images={image_key(image): image["sha256"] for image in client.images()},
        volumes={f"{one['tenant']}/{one['name']}": one["size_bytes"] for one in client.volumes()},
        vms={f"{vm['tenant']}/{vm['name']}": _vm(vm) for vm in client.vms()},
    )


def _network(network: Json) -> WantedNetwork:
    bridge, vlan = network["bridge"], network["vlan"]
    return WantedNetwork(
        name=network["name"],
        subnet=network["subnet"],
        tenant=network["tenant"],
        uplink=None if bridge is None else Uplink(bridge=bridge, vlan=vlan),
        dhcp_servers=tuple(network["dhcp_servers"]),
    )


def _vm(vm: Json) -> ExistingVm:
    shape = {member.name: vm[member.name] for member in fields(VmShape) if member.name not in {"host", "gpu"}}
    shape |= {"ssh_keys": tuple(vm["ssh_keys"]), "volumes": tuple(vm["volumes"])}
    shape["more_networks"] = tuple(vm["more_networks"])
    labels = tuple(sorted(vm["labels"].items()))
    wanted = ManifestVm(
        **shape, labels=labels, running=True, has_user_data=vm["has_user_data"], protected=vm.get("protected", False)
    )
    return ExistingVm(
        vm=wanted,
        state=vm["state"],
        on_host=vm["host"],
        label=vm["label"],
        created_at=parse_moment(vm["created_at"], field="created_at"),
        lease_end=None if vm["lease_end"] is None else parse_moment(vm["lease_end"], field="lease_end"),
    )
