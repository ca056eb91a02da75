# SPDX-License-Identifier: Apache-2.0
"""Calls of the API about a site: its hosts, GPUs, drivers, images and networks, what is offered and what differs.

``generated/async_site_calls.py`` is written from this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.client.connection import path_of
from orchestrator.client.content import Content
from orchestrator.client.disk_calls import Body, DiskCalls

if TYPE_CHECKING:
    from orchestrator.client.generated import models


class SiteCalls(DiskCalls):
    """Over one connection, which ends with it."""

    def suspend_vm(self, name: str, tenant: str) -> models.Started:
        """Its memory goes to its host's disk."""
        return self._post(path_of("vms", name, "suspend"), tenant=tenant)

    def resume_vm(self, name: str, tenant: str) -> models.Started:
        return self._post(path_of("vms", name, "resume"), tenant=tenant)

    def discard_suspended_vm(self, name: str, tenant: str) -> models.Started:
        """What it had in memory is gone then."""
        return self._post(path_of("vms", name, "discard-suspended"), tenant=tenant)

    def web_ticket(self) -> Mapping[str, Any]:
        """A ``ticket`` that logs a browser in once, within a minute, as ``actor``; ``address``: of the server's pages
        for a user of its machine, None: they are where the API is."""
        return self.connection.call("POST", "/web/tickets")

    def scan_host(self, address: str, port: int) -> models.HostKey:
        """The SSH host key that answers there now; nothing is pinned."""
        return self._ask(path_of("hosts", "scan"), {"address": address, "port": port})

    def check_host(self, name: str) -> models.HostCheck:
        """``ready`` and ``requirements``."""
        return self._post(path_of("hosts", name, "check"))

    def check_new_host(self, wanted: Body) -> models.HostCheck:
        """Of a host that is not added; the key is used for this and not kept."""
        return self._post(path_of("hosts", "check"), wanted)

    def add_host(self, wanted: Body) -> models.Started:
        return self._post(path_of("hosts"), wanted)

    def findings(self, host: str | None) -> list[models.Finding]:
        """What differs, as the last observations showed it."""
        return self._list(path_of("findings"), host=host)

    def observe_findings(self, host: str | None) -> list[models.Finding]:
        """What differs, after observing the hosts."""
        return self._ask(path_of("findings", "look"), {}, host=host)

    def repair_findings(self, host: str | None, remove: str | None = None) -> models.Repairs:
        """Operations that were begun. ``remove``: only what removes all of the VM or volume with that id."""
        return self._post(path_of("findings", "repair"), host=host, remove=remove)

    def hosts(self, selector: str | None = None, state: str | None = None) -> list[models.Host]:
        """``selector``: of labels, like ``rack=3,!spare``; ``state``: may be ``cordoned``, too; None: all."""
        return self._list(path_of("hosts"), selector=selector, state=state)

    def host(self, name: str) -> models.Host:
        return self._get(path_of("hosts", name))

    def change_host(self, name: str, values: Body) -> models.Host:
        """``vcpu_overcommit``, ``memory_overcommit``, ``allow_unconfined``, ``labels`` by key (None takes one away)."""
        return self.connection.call("PATCH", path_of("hosts", name), values)

    def adopt_vm(self, wanted: Body) -> models.Started:
        return self._post(path_of("vms", "adopt"), wanted)

    def remove_host(self, name: str) -> models.Started:
        return self._delete(path_of("hosts", name))

    def forget_host(self, name: str, confirm: str) -> models.Host:
        return self._post(path_of("hosts", name, "forget"), {"confirm": confirm})

    def upgrade_agent(self, name: str) -> models.Started:
        return self._post(path_of("hosts", name, "upgrade-agent"))

    def provision_host(self, name: str) -> models.Started:
        return self._post(path_of("hosts", name, "provision"))

    def plan_provisioning(self, name: str) -> models.HostProvisioningPlan:
        """``changes``, for people."""
        return self._post(path_of("hosts", name, "provision", "plan"))

    def provision_vm(self, name: str, tenant: str, wanted: Body) -> models.Started:
        """``roles``: by name; ``new_host_key``; ``settings`` and ``secrets`` for the roles, by name."""
        return self._post(path_of("vms", name, "provision"), wanted, tenant=tenant)

    def provisioned(self, name: str, tenant: str) -> models.Provisioning:
        """What was put into the guest."""
        return self._get(path_of("vms", name, "provision"), tenant=tenant)

    def cordon(self, name: str, reason: str | None = None) -> models.Host:
        return self._post(path_of("hosts", name, "cordon"), {"reason": reason} if reason else None)

    def uncordon(self, name: str) -> models.Host:
        return self._post(path_of("hosts", name, "uncordon"))

    def gpus(self) -> list[models.Gpu]:
        return self._list(path_of("gpus"))

    def gpu(self, host: str, address: str) -> models.Gpu:
        return self._get(path_of("gpus", host, address))

    def host_activities(
        self, *, text: str | None = None, sort: str | None = None, limit: int | None = None
    ) -> list[models.HostActivity]:
        """What the GPUs of each host do now, by name, or the first so many in another order. ``text``: that is in one
        of a row's members; ``sort``: members with commas between, ``-`` before one: the other way round."""
        return self.connection.pages(path_of("readings", "hosts"), {"filter": text, "sort": sort}, at_most=limit)

    def gpu_activities(
        self,
        host: str | None = None,
        model: str | None = None,
        *,
        text: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> list[models.GpuActivity]:
        """What GPUs do now, as hosts are listed. ``model``: that is in the name of theirs."""
        only = {"host": host, "model": model, "filter": text, "sort": sort}
        return self.connection.pages(path_of("readings", "gpus"), only, at_most=limit)

    def vm_activities(
        self, tenant: str | None = None, *, text: str | None = None, sort: str | None = None, limit: int | None = None
    ) -> list[models.VmActivity]:
        """What running VMs and their vGPUs do now, as hosts are listed."""
        only = {"tenant": tenant, "filter": text, "sort": sort}
        return self.connection.pages(path_of("readings", "vms"), only, at_most=limit)

    def host_readings(self, host: str, *, history: bool = False) -> models.HostReadings:
        """What its GPUs, vGPUs and VMs do now. ``history``: with the last five minutes."""
        return self._get(path_of("readings", "hosts", host), history="true" if history else None)

    def profiles(
        self, *, kind: str | None = None, model: str | None = None, host: str | None = None, free: bool = False,
        available: bool = False,
    ) -> list[models.Profile]:  # fmt: skip
        """``model``: of a GPU that gives it, or what several have in their names; ``free``: only those of which
        one fits now; ``available``: only those that some host offers."""
        only = {"free": free, "available": available}
        wanted = {name: "true" for name, value in only.items() if value}
        return self._list(path_of("profiles"), kind=kind, model=model, host=host, **wanted)

    def profile(self, name: str) -> models.Profile:
        return self._get(path_of("profiles", name))

    def offerings(self) -> list[models.Offering]:
        """Those that the site added."""
        return self._list(path_of("offerings"))

    def put_offering(self, wanted: Body) -> models.Offering:
        """Added, or changed where no VM has it."""
        return self.connection.call("PUT", path_of("offerings"), wanted)

    def remove_offering(self, name: str) -> None:
        self._delete(path_of("offerings", name))

    def driver_bundles(self) -> list[models.DriverBundle]:
        return self._list(path_of("driver-bundles"))

    def add_driver_bundle(self, wanted: Body) -> models.DriverBundle:
        """``source``: an absolute path on the server's machine; ``signature`` and ``key``: texts."""
        return self._post(path_of("driver-bundles"), wanted)

    def upload_driver_bundle(self, content: Content, signature: str | None, key: str) -> models.DriverBundle:
        """``content``: of :func:`orchestrator.client.content.open_content`; the others: texts."""
        path = path_of("driver-bundles", self.connection.digest_of(content), "content")
        return self.connection.upload(path, content, {"signature": signature, "key": key})

    def remove_driver_bundle(self, sha256: str) -> None:
        self._delete(path_of("driver-bundles", sha256))

    def driver_lock(self) -> models.DriverLock:
        """``site`` and ``groups``."""
        return self._get(path_of("driver-lock"))

    def put_driver_lock(self, wanted: Body) -> models.DriverLock:
        return self.connection.call("PUT", path_of("driver-lock"), wanted)

    def accept_gpus(self, host: str, addresses: Sequence[str]) -> models.Started:
        """``addresses``: of GPUs whose card was replaced by another one, which is right."""
        return self._post(path_of("gpus", host, "accept"), {"addresses": list(addresses)})

    def plan_mig_layout(self, host: str, entries: Sequence[Body]) -> list[models.LayoutPlan]:
        """For each GPU that the entries speak of."""
        return self._ask(path_of("hosts", host, "mig-layout", "plan"), {"entries": list(entries)})

    def apply_mig_layout(self, host: str, entries: Sequence[Body]) -> models.Started:
        return self.connection.call("PUT", path_of("hosts", host, "mig-layout"), {"entries": list(entries)})

    def release_mig_layout(self, host: str, gpu: str | None) -> models.Started:
        return self._delete(path_of("hosts", host, "mig-layout"), gpu=gpu)

    def driver_check(
        self, host_driver: str | None, host: str | None = None, verdict: str | None = None
    ) -> models.DriverCheck:
        """``rows``; with ``host_driver`` VMs are judged as if every host had that one. ``host``: a name or pattern;
        ``verdict``: only what compares so."""
        query = {"host_driver": host_driver, "host": host, "verdict": verdict}
        return {"rows": self.connection.pages(path_of("driver-check"), query, member="rows")}

    def start_driver_upgrade(self, wanted: Body) -> models.Maintenance:
        return self._post(path_of("driver-upgrade"), wanted)

    def drain_host(self, host: str, wanted: Body) -> models.Maintenance:
        return self._post(path_of("hosts", host, "drain"), wanted)

    def reboot_host(self, host: str, wanted: Body) -> models.Maintenance:
        """``wanted``: as of :meth:`drain_host`."""
        return self._post(path_of("hosts", host, "reboot"), wanted)

    def evacuate_host(self, host: str, wanted: Body) -> models.Maintenance:
        """``wanted``: ``confirm``, its name; ``fence``: hand or agent."""
        return self._post(path_of("hosts", host, "evacuate"), wanted)

    def defragment(self, wanted: Body) -> models.Maintenance:
        return self._post(path_of("gpus", "defragment"), wanted)

    def plan_defragment(self, wanted: Body) -> models.Defragmentation:
        return self._post(path_of("gpus", "defragment", "plan"), wanted)

    def maintenances(self) -> list[models.MaintenanceCounts]:
        """The newest first."""
        return self._get(path_of("maintenances"))

    def maintenance(self, name: str = "newest") -> models.Maintenance:
        """With how far each host is. ``name``: its id, or how it begins; ``newest``: the one that was declared last."""
        return self._get(path_of("maintenances", name))

    def change_maintenance(self, what: str, name: str = "newest") -> models.Maintenance:
        """``what``: pause, resume or cancel. ``newest``: the only one that can be changed so."""
        return self._post(path_of("maintenances", name, what))

    def set_guest_driver(self, image: str, version: str | None, tenant: str | None = None) -> models.Image:
        """``tenant``: whose own image it is; None: the site's."""
        path = _image_path(tenant, image, "guest-driver")
        return self.connection.call("PUT", path, {"version": version})

    def images(self, tenant: str | None = None, selector: str | None = None) -> list[models.Image]:
        """Those that VMs can be made of: the site's, and of tenants. ``selector``: of labels."""
        return self._list(path_of("images"), tenant=tenant, selector=selector)

    def add_image(self, wanted: Body) -> models.Image:
        """``source``: a URL, or a path on the server's machine in its ``file_directories``."""
        return self._post(path_of("images"), wanted)

    def upload_image(
        self, name: str, content: Content, image_format: str | None = None, tenant: str | None = None, *,
        shared: bool = False,
    ) -> models.Image:  # fmt: skip
        """``content``: of :func:`orchestrator.client.content.open_content`; ``image_format``: None: the content tells.
        ``tenant``: whose alone it is, unless ``shared``; None: the site's. What is there already is not sent again."""
        query = {"sha256": self.connection.digest_of(content), "format": image_format}
        query |= {} if tenant is None else {"shared": "true" if shared else "false"}
        return self.connection.upload(_image_path(tenant, name, "content"), content, query)

    def describe_image(self, name: str, changes: Body, tenant: str | None = None) -> models.Image:
        """Description and labels, of the tenant's own; None: of the site's. Those not named stay."""
        return self.connection.call("PATCH", _image_path(tenant, name), changes)

    def remove_image(self, name: str, tenant: str | None = None) -> None:
        self._delete(_image_path(tenant, name))

    def network_driver(self) -> models.NetworkDriver:
        """What makes networks, asked now, and what is not as it should be there."""
        return self._get(path_of("network-driver"))

    def sign_ovn_certificate(self, wanted: Body) -> models.SignedCertificate:
        """For the key of a host or of a central server of OVN."""
        return self._ask(path_of("network-driver", "certificates"), wanted)

    def networks(self, tenant: str | None = None, selector: str | None = None) -> list[models.Network]:
        """Those that VMs can be put on: of the site, and of tenants. ``selector``: of labels."""
        return self._list(path_of("networks"), tenant=tenant, selector=selector)

    def network(self, name: str, tenant: str | None = None) -> models.Network:
        """What the tenant calls so, of its own or shared; None: of the site."""
        return self._get(_network_path(tenant, name))

    def network_traffic(self, name: str, tenant: str) -> models.NetworkTraffic:
        """What the cards of its VMs have received and sent, together."""
        return self._get(path_of("tenants", tenant, "networks", name, "traffic"))

    def network_flows(self, name: str, tenant: str, since_s: float | None = None) -> models.NetworkFlows:
        """What its flow log has of the last so many seconds; None: of an hour."""
        return self._get(path_of("tenants", tenant, "networks", name, "flows"), since_s=since_s)

    def image(self, name: str, tenant: str | None = None) -> models.Image:
        """What the tenant calls so, its own or the site's; None: of the site."""
        return self._get(_image_path(tenant, name))

    def create_floating_address(self, wanted: Body) -> models.FloatingAddress:
        """``wanted``: ``tenant``, ``network``, ``address``; the last one the tenant may have already."""
        return self._post(path_of("floating-addresses"), wanted)

    def floating_addresses(self, tenant: str | None = None) -> list[models.FloatingAddress]:
        """By tenant and address."""
        return self._list(path_of("floating-addresses"), tenant=tenant)

    def attach_floating_address(self, address: str, wanted: Body, tenant: str) -> models.FloatingAddress:
        """``wanted``: ``vm``, ``network`` of its card."""
        return self._post(path_of("floating-addresses", address, "attach"), wanted, tenant=tenant)

    def detach_floating_address(self, address: str, tenant: str) -> models.FloatingAddress:
        return self._post(path_of("floating-addresses", address, "detach"), tenant=tenant)

    def delete_floating_address(self, address: str, tenant: str) -> None:
        self._delete(path_of("floating-addresses", address), tenant=tenant)

    def add_network(self, wanted: Body, tenant: str | None = None) -> models.Network:
        """Of the tenant alone; None: of the site, for every tenant."""
        return self._post(_network_path(tenant), wanted)

    def describe_network(self, name: str, changes: Body, tenant: str | None = None) -> models.Network:
        """Description and labels, of the tenant's own; None: of the site's. Those not named stay."""
        return self.connection.call("PATCH", _network_path(tenant, name), changes)

    def convert_network(self, name: str, tenant: str, out: str | None = None) -> models.Started:
        """A NAT network whose VMs are stopped becomes one of kind ovn. ``out``: provider network that leads out."""
        return self._post(path_of("tenants", tenant, "networks", name, "convert"), {"out": out})

    def delete_network(self, name: str, tenant: str | None = None) -> None:
        self._delete(_network_path(tenant, name))

    def share_network(self, name: str, *, shared: bool) -> models.Network:
        """Of the site: whether tenants may put VMs on it."""
        path = path_of("networks", name, "share" if shared else "unshare")
        return self._post(path)


def _network_path(tenant: str | None, *name: str) -> str:
    """Of a tenant's network; None: of the site."""
    return path_of("networks", *name) if tenant is None else path_of("tenants", tenant, "networks", *name)


def _image_path(tenant: str | None, *name: str) -> str:
    """Of a tenant's image; None: of the site."""
    return path_of("images", *name) if tenant is None else path_of("tenants", tenant, "images", *name)
