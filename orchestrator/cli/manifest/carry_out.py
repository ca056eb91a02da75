# SPDX-License-Identifier: Apache-2.0
"""Does what has to change, side by side where order does not matter. One failure does not keep the rest."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from threading import Event, local

from orchestrator.cli.manifest.observed import request_of
from orchestrator.cli.output import printable
from orchestrator.cli.progress import wait_among_others
from orchestrator.cli.session import CliSession
from orchestrator.cli.uploading import take_image
from orchestrator.client.connection import Json
from orchestrator.core.errors import Conflict, NotFound, VgpuctlError
from orchestrator.core.manifest import PROTECTED, Action, Change, Manifest, ManifestVm
from orchestrator.core.manifest_changes import is_protected
from orchestrator.core.overlay import NewOvnNetwork
from orchestrator.core.security_groups import DEFAULT_GROUP
from orchestrator.core.vms.lease import show_moment
from orchestrator.core.vms.network import WantedNetwork

DONE: Mapping[Action, str] = {
    "add": "added",
    "set": "set",
    "extend": "extended",
    "start": "started",
    "stop": "stopped",
    "delete": "deleted",
}


@dataclass(frozen=True, kw_only=True)
class ChangeOutcome:
    """What became of one change. ``error`` is None when it was made."""

    change: Change
    seconds: float
    error: VgpuctlError | None = None

    @property
    def words(self) -> str:
        """For people, without colours."""
        name = printable(f"{self.change.kind} {self.change.name}")
        if self.error is None:
            return f"✓ {name}: {DONE[self.change.action]} ({self.seconds:.1f} s)"
        return f"✗ {name}: {printable(f'{self.error.message} [{self.error.code}]')}"


class CarryOut:
    """Makes changes of one file. Each thread has a connection of its own."""

    def __init__(self, session: CliSession, manifest: Manifest, parallel: int) -> None:
        self._session = session
        self._vms = {vm.key: vm for vm in manifest.vms}
        self._images = {image.name: image for image in manifest.images}
        self._tenants = {tenant.name: tenant for tenant in manifest.tenants}
        self._offerings = {wanted.name: wanted for wanted in manifest.offerings}
        self._networks = {network.key: network for network in manifest.networks}
        self._groups = {group.key: group for group in manifest.groups}
        self._floating = {floating.key: floating for floating in manifest.floating}
        self._volumes = {volume.key: volume for volume in manifest.volumes}
        self._label = manifest.label
        self._parallel = parallel
        self._own = local()
        self._stop = Event()

    def run(self, changes: Iterable[Change]) -> list[ChangeOutcome]:
        """All of them: what goes first, then tenants, offerings, networks and images, then longer leases and labels,
        then VMs, and at last what security groups are on and where floating addresses lead."""
        waiting = list(changes)
        rest = [change for change in waiting if change.action != "delete"]
        outcomes = self._side_by_side([change for change in waiting if change.action == "delete"])
        outcomes += [self._one(change) for change in rest if change.kind != "vm" and not _is_after_vms(change)]
        vms = [change for change in rest if change.kind == "vm"]
        at_once = ("extend", "set")
        outcomes += [self._one(change) for change in vms if change.action in at_once]
        outcomes += self._side_by_side([change for change in vms if change.action not in at_once])
        return outcomes + [self._one(change) for change in rest if _is_after_vms(change)]

    def _side_by_side(self, changes: list[Change]) -> list[ChangeOutcome]:
        with ThreadPoolExecutor(self._parallel) as pool:
            try:
                return list(pool.map(self._one, changes))
            except KeyboardInterrupt:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _one(self, change: Change) -> ChangeOutcome:
        begin = time.monotonic()
        error: VgpuctlError | None = None
        try:
            self._do(change)
        except VgpuctlError as refused:
            error = refused
        outcome = ChangeOutcome(change=change, seconds=time.monotonic() - begin, error=error)
        if self._session.format == "table":
            print(outcome.words, file=sys.stderr, flush=True)
        return outcome

    def _do(self, change: Change) -> None:
        if change.action == "refuse":
            raise _cannot_change(change)
        if change.kind == "vm":
            self._change_vm(change)
        elif change.kind == "offering":
            wanted = self._offerings[change.name]
            self._session.client.put_offering(request_of(wanted.offering, look_up=wanted.look_up))
        elif change.kind == "tenant":
            self._change_tenant(change)
        elif change.kind == "security_group":
            self._change_group(change)
        elif change.kind == "floating_address":
            self._change_floating(change)
        elif change.action == "add":
            self._add(change)
        elif change.kind == "network":
            self._change_network(change)
        if change.kind not in {"vm", "offering", "floating_address"}:
            self._describe(change)

    def _add(self, change: Change) -> None:
        if change.kind == "network":
            self._add_network(self._networks[change.name])
        elif change.kind == "image":
            image = self._images[change.name]
            take_image(self._session, image.name, image.source, image.sha256, None)
        else:
            volume = self._volumes[change.name]
            self._session.client.create_volume(asdict(volume))

    def _describe(self, change: Change) -> None:
        values = _values(change)
        if not values:
            return
        client = self._session.client
        tenant, _, name = change.name.rpartition("/")
        if change.kind == "tenant":
            client.describe_tenant(name, values)
        elif change.kind == "volume":
            client.describe_volume(name, values, tenant)
        elif change.kind == "network":
            client.describe_network(name, values, tenant or None)
        elif change.kind == "security_group":
            client.describe_security_group(name, values, tenant)
        else:
            client.describe_image(name, values)

    def _add_network(self, network: WantedNetwork) -> None:
        body: dict[str, object] = {"name": network.name, "subnet": network.subnet}
        if network.overlay is not None:
            body |= {"kind": "ovn", "subnet": network.overlay.subnets[0], "out": network.out}
            body |= {"more_subnets": list(network.overlay.subnets[1:]), **_settings_of(network.overlay)}
        if network.uplink is None:
            self._session.client.add_network(body, network.tenant)
            return
        servers = {"dhcp_servers": list(network.dhcp_servers), "tenant": network.tenant}
        self._session.client.add_network(body | asdict(network.uplink) | servers)

    def _change_network(self, change: Change) -> None:
        """What guests of one of kind ovn are told, more subnets and peers; of others that is refused."""
        network = self._networks[change.name]
        if [field.field for field in change.fields] == ["peers"]:
            self._session.client.describe_network(network.name, {"join": list(network.peers)}, network.tenant)
        elif network.overlay is not None and any(not _is_about(field.field) for field in change.fields):
            values = {"more_subnets": list(network.overlay.subnets), **_settings_of(network.overlay)}
            self._session.client.describe_network(network.name, values, network.tenant)

    def _change_group(self, change: Change) -> None:
        """Groups of the file that rules name are made with the first that names them."""
        client, wanted = self._session.client, self._groups[change.name]
        place = wanted.name, wanted.tenant
        if _is_after_vms(change):
            has, uses = (client.security_group(*place)["uses"], [asdict(use) for use in wanted.uses or ()])
            client.change_group_uses(wanted.name, _difference(has, uses), wanted.tenant)
            return
        named = {wanted.name, *(rule.group for rule in wanted.rules or () if rule.group is not None)}
        for name in sorted(named):
            if f"{wanted.tenant}/{name}" in self._groups and name != DEFAULT_GROUP:
                client.create_security_group({"name": name, "tenant": wanted.tenant})
        if wanted.rules is not None:
            allowed, rules = client.security_group(*place)["rules"], [asdict(rule) for rule in wanted.rules]
            client.change_group_rules(wanted.name, _difference(allowed, rules), wanted.tenant)

    def _change_floating(self, change: Change) -> None:
        client, wanted = self._session.client, self._floating[change.name]
        if change.action == "add":
            values = {"tenant": wanted.tenant, "network": wanted.network, "address": wanted.address}
            client.create_floating_address(values)
        else:
            led = {"vm": wanted.vm, "network": wanted.vm_network}
            client.attach_floating_address(wanted.address, led, wanted.tenant)

    def _change_tenant(self, change: Change) -> None:
        client, tenant = self._session.client, self._tenants[change.name]
        if change.action == "add":
            client.create_tenant(tenant.name)
        differing = {field.field for field in change.fields}
        limits = {resource: limit for resource, limit in tenant.quota if resource in differing}
        if limits:
            client.change_quota(tenant.name, limits)

    def _change_vm(self, change: Change) -> None:
        session = self._thread_session()
        tenant, _, name = change.name.partition("/")
        verbs: dict[Action, Callable[[], Json]] = {
            "add": lambda: session.client.create_vm(request_for(self._vms[change.name], self._label)),
            "start": lambda: session.client.start_vm(name, tenant),
            "stop": lambda: session.client.stop_vm(name, tenant),
            "delete": lambda: session.client.delete_vm(name, tenant),
        }
        if change.action == "extend":
            session.client.extend_vm(name, tenant, {"until": change.fields[0].wanted})
            return
        if change.action == "set":
            session.client.change_vm(name, tenant, _values(change))
            return
        try:
            started = verbs[change.action]()
        except NotFound as error:
            if (change.action, error.code) != ("delete", "vm.unknown"):
                raise
            return  # somebody was quicker: it is gone, as it was to be
        if started["operation"] is not None:
            wait_among_others(session, started["operation"], self._stop)

    def _thread_session(self) -> CliSession:
        if not hasattr(self._own, "session"):
            self._own.session = self._session.sibling()
        session: CliSession = self._own.session
        return session


def _is_after_vms(change: Change) -> bool:
    """It names VMs, which the same file may make."""
    names = [field.field for field in change.fields]
    return (change.kind, names) in (("security_group", ["uses"]), ("floating_address", ["vm"]))


def _is_about(field: str) -> bool:
    """Of a thing, and no part of what it is."""
    return field == "description" or field.startswith("labels.")


def _difference(has: Sequence[object], wanted: Sequence[object]) -> dict[str, object]:
    return {
        "add": [item for item in wanted if item not in has],
        "remove": [item for item in has if item not in wanted],
    }


def _settings_of(overlay: NewOvnNetwork) -> dict[str, object]:
    """What a file says of it beside its subnets, as the API takes it."""
    plain = {"mtu": overlay.mtu, "flow_log": overlay.flow_log}
    values: dict[str, object] = {name: value for name, value in plain.items() if value is not None}
    values |= {} if overlay.dns is None else {"dns_servers": list(overlay.dns)}
    values |= {} if overlay.search is None else {"search_domains": list(overlay.search)}
    return values | ({} if overlay.dhcp is None else {"dhcp_options": dict(overlay.dhcp)})


def _cannot_change(change: Change) -> Conflict:
    if is_protected(change):
        tenant, _, name = change.name.partition("/")
        command = f"'vgpuctl vm set {name} --tenant {tenant} --no-protect'"
        message = f"it is protected; {command} lets it be deleted"
        return Conflict("vm.protected", message, hint="then apply again")
    differing = "; ".join(f"{field.field} is {field.there}, wanted {field.wanted}" for field in change.fields)
    return Conflict(
        "manifest.cannot_change",
        f"it exists otherwise: {differing}",
        hint=f"{_by_command(change)}change the file, or delete the object and apply again",
    )


def _by_command(change: Change) -> str:
    """What a command makes of a VM that an apply leaves as it is; "" where none does all of it."""
    tenant, _, name = change.name.partition("/")
    wanted = {field.field: field.wanted for field in change.fields}
    if change.kind != "vm" or not wanted:
        return ""
    vm = f"{name} --tenant {tenant}"
    if wanted.keys() == {"profile"}:
        return f"'vgpuctl vm resize {vm} --profile \"{wanted['profile']}\"' makes it so, once it is stopped; or "
    if wanted.keys() <= {"profile", "vcpus", "memory"}:
        return "'vgpuctl vm resize --help' tells how it becomes another size; or "
    if wanted.keys() == {"disk"}:
        return f"'vgpuctl vm resize-disk {vm} --size {wanted['disk']}' makes it so, where it grows; or "
    return f"'vgpuctl vm move {vm} --to {wanted['host']}' makes it so; or " if wanted.keys() == {"host"} else ""


def _values(change: Change) -> dict[str, object]:
    """What is said of a thing and whether it is protected, as the API takes them."""
    wanted = {field.field: field.wanted for field in change.fields}
    labels = {key.removeprefix("labels."): value for key, value in wanted.items() if key.startswith("labels.")}
    values: dict[str, object] = {"labels": labels} if labels else {}
    if "description" in wanted:
        values["description"] = wanted["description"]
    if PROTECTED in wanted:
        values["protected"] = wanted[PROTECTED] == "true"
    return values


def request_for(vm: ManifestVm, label: str | None) -> dict[str, object]:
    """What the API is asked for the VM."""
    until = None if vm.end.at is None else show_moment(vm.end.at)
    end = {"lease_s": vm.end.after_s, "until": until}
    rest = {
        "ssh_keys": list(vm.ssh_keys),
        "volumes": list(vm.volumes),
        "more_networks": list(vm.more_networks),
        "user_data": vm.user_data,
        "from_snapshot": vm.from_snapshot,
        "from_backup": vm.from_backup,
        "start": vm.running,
        "label": label,
    }
    size = {name: getattr(vm, name) or None for name in ("vcpus", "memory_mib", "disk_bytes")}
    rest |= {} if vm.protected is None else {"protected": vm.protected}
    return vm.shape() | size | end | rest | {"labels": dict(vm.labels), "addresses": dict(vm.addresses)}
