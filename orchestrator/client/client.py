# SPDX-License-Identifier: Apache-2.0
"""Every call of the API as a method. Objects come as the API's JSON; errors are those of core/errors.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.client.connection import Connection, Json, path_of

Body = Mapping[str, object]


class Client:
    """All nouns of the API. Times are RFC 3339 in UTC, sizes MiB or bytes as their names say."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def _get(self, path: str, **query: object) -> Any:
        return self.connection.call("GET", path, query=query)

    def _list(self, path: str, **query: object) -> list[Json]:
        return self.connection.pages(path, query)

    def _post(self, path: str, body: Body | None = None, **query: object) -> Any:
        return self.connection.call("POST", path, body if body is not None else {}, query)

    def _delete(self, path: str, **query: object) -> Any:
        return self.connection.call("DELETE", path, query=query)

    def create_vm(self, wanted: Body) -> Json:
        """Started. The same request again attaches to the operation or shows the VM."""
        started: Json = self._post(path_of("vms"), wanted)
        return started

    def plan_vm(self, wanted: Body) -> Json:
        """Where it would go, every host action and the domain XML; changes nothing."""
        planned: Json = self._post(path_of("vms", "plan"), wanted)
        return planned

    def vms(self, tenant: str | None = None, **only: str | None) -> list[Json]:
        """``only``: ``state``, ``host``, ``profile``, ``label`` (of a file), ``selector`` of labels."""
        return self._list(path_of("vms"), tenant=tenant, **only)

    def label_vm(self, name: str, tenant: str, labels: Body) -> Json:
        """By key; None takes one away."""
        vm: Json = self.connection.call("PATCH", path_of("vms", name), {"labels": labels}, {"tenant": tenant})
        return vm

    def vm(self, name: str, tenant: str) -> Json:
        found: Json = self._get(path_of("vms", name), tenant=tenant)
        return found

    def delete_vm(self, name: str, tenant: str) -> Json:
        started: Json = self._delete(path_of("vms", name), tenant=tenant)
        return started

    def start_vm(self, name: str, tenant: str) -> Json:
        started: Json = self._post(path_of("vms", name, "start"), tenant=tenant)
        return started

    def stop_vm(self, name: str, tenant: str, *, force: bool = False) -> Json:
        """``force``: power off at once, without asking the guest."""
        started: Json = self._post(path_of("vms", name, "stop"), tenant=tenant, force="true" if force else None)
        return started

    def restart_vm(self, name: str, tenant: str, *, force: bool = False) -> Json:
        started: Json = self._post(path_of("vms", name, "restart"), tenant=tenant, force="true" if force else None)
        return started

    def extend_vm(self, name: str, tenant: str, end: Body) -> Json:
        """``lease_s`` from now, or ``until``; the VM."""
        vm: Json = self._post(path_of("vms", name, "extend"), end, tenant=tenant)
        return vm

    def tenants(self) -> list[Json]:
        return self._list(path_of("tenants"))

    def tenant(self, name: str) -> Json:
        found: Json = self._get(path_of("tenants", name))
        return found

    def create_tenant(self, name: str) -> Json:
        tenant: Json = self._post(path_of("tenants"), {"name": name})
        return tenant

    def delete_tenant(self, name: str) -> None:
        self._delete(path_of("tenants", name))

    def members(self, tenant: str) -> list[Json]:
        """``*``: those whose roles hold everywhere."""
        return self._list(path_of("tenants", tenant, "members"))

    def put_member(self, tenant: str, subject: str, role: str) -> None:
        self.connection.call("PUT", path_of("tenants", tenant, "members"), {"subject": subject, "role": role})

    def remove_member(self, tenant: str, subject: str) -> None:
        self._delete(path_of("tenants", tenant, "members"), subject=subject)

    def quota(self, tenant: str) -> list[Json]:
        """``*``: the pool that all tenants share."""
        found: list[Json] = self._get(path_of("tenants", tenant, "quota"))
        return found

    def change_quota(self, tenant: str, limits: Body) -> list[Json]:
        """By resource; None takes a limit away. Framebuffer, memory and disk in MiB."""
        path = path_of("tenants", tenant, "quota")
        found: list[Json] = self.connection.call("PATCH", path, {"limits": limits})
        return found

    def policy(self, tenant: str) -> Json:
        found: Json = self._get(path_of("tenants", tenant, "policy"))
        return found

    def change_policy(self, tenant: str, values: Body) -> Json:
        """Durations in seconds; what is not named stays."""
        found: Json = self.connection.call("PATCH", path_of("tenants", tenant, "policy"), values)
        return found

    def create_token(self, wanted: Body) -> Json:
        """``token``, which no other answer shows, and ``about``."""
        made: Json = self._post(path_of("tokens"), wanted)
        return made

    def whoami(self) -> Json:
        """``actor``, ``grants`` and the ``only_tenant`` they have a role in."""
        caller: Json = self._get(path_of("whoami"))
        return caller

    def tokens(self, tenant: str) -> list[Json]:
        return self._list(path_of("tokens"), tenant=tenant)

    def revoke_token(self, token_id: str, tenant: str) -> None:
        self._delete(path_of("tokens", token_id), tenant=tenant)

    def audit(self, limit: int, before: int | None) -> list[Json]:
        """Newest first, at most so many, over as many pages as that takes."""
        return self.connection.pages(path_of("audit"), {"before": before}, at_most=limit)

    def export_audit(self, after: int) -> Iterator[Json]:
        """Every record after that sequence number, oldest first."""
        while found := self._get(path_of("audit", "export"), after=after):
            yield from found
            after = found[-1]["sequence"]

    def verify_audit(self, head: str | None) -> Json:
        verdict: Json = self._get(path_of("audit", "verify"), head=head)
        return verdict

    def scan_host(self, address: str, port: int) -> Json:
        """The SSH host key that answers there now; nothing is pinned."""
        key: Json = self._post(path_of("hosts", "scan"), {"address": address, "port": port})
        return key

    def check_host(self, name: str) -> Json:
        """``ready`` and ``requirements``."""
        found: Json = self._post(path_of("hosts", name, "check"))
        return found

    def check_new_host(self, wanted: Body) -> Json:
        """Of a host that is not added; the key is used for this and not kept."""
        found: Json = self._post(path_of("hosts", "check"), wanted)
        return found

    def add_host(self, wanted: Body) -> Json:
        started: Json = self._post(path_of("hosts"), wanted)
        return started

    def findings(self, host: str | None) -> list[Json]:
        """What differs, as the last observations showed it."""
        return self._list(path_of("findings"), host=host)

    def observe_findings(self, host: str | None) -> list[Json]:
        """What differs, after observing the hosts."""
        found: list[Json] = self._post(path_of("findings", "look"), host=host)
        return found

    def repair_findings(self, host: str | None) -> Json:
        """Operations that were begun."""
        begun: Json = self._post(path_of("findings", "repair"), host=host)
        return begun

    def hosts(self) -> list[Json]:
        return self._list(path_of("hosts"))

    def host(self, name: str) -> Json:
        found: Json = self._get(path_of("hosts", name))
        return found

    def change_host(self, name: str, values: Body) -> Json:
        """``vcpu_overcommit``, ``memory_overcommit``, ``labels`` by key (None takes one away); others stay."""
        host: Json = self.connection.call("PATCH", path_of("hosts", name), values)
        return host

    def adopt_vm(self, wanted: Body) -> Json:
        started: Json = self._post(path_of("vms", "adopt"), wanted)
        return started

    def remove_host(self, name: str) -> Json:
        started: Json = self._delete(path_of("hosts", name))
        return started

    def forget_host(self, name: str, confirm: str) -> Json:
        host: Json = self._post(path_of("hosts", name, "forget"), {"confirm": confirm})
        return host

    def upgrade_agent(self, name: str) -> Json:
        started: Json = self._post(path_of("hosts", name, "upgrade-agent"))
        return started

    def provision_host(self, name: str) -> Json:
        started: Json = self._post(path_of("hosts", name, "provision"))
        return started

    def cordon(self, name: str) -> Json:
        host: Json = self._post(path_of("hosts", name, "cordon"))
        return host

    def uncordon(self, name: str) -> Json:
        host: Json = self._post(path_of("hosts", name, "uncordon"))
        return host

    def gpus(self) -> list[Json]:
        return self._list(path_of("gpus"))

    def gpu(self, host: str, address: str) -> Json:
        found: Json = self._get(path_of("gpus", host, address))
        return found

    def profiles(self) -> list[Json]:
        return self._list(path_of("profiles"))

    def profile(self, name: str) -> Json:
        found: Json = self._get(path_of("profiles", name))
        return found

    def offerings(self) -> list[Json]:
        """Those that the site added."""
        return self._list(path_of("offerings"))

    def put_offering(self, wanted: Body) -> Json:
        """Added, or changed where no VM has it."""
        offering: Json = self.connection.call("PUT", path_of("offerings"), wanted)
        return offering

    def remove_offering(self, name: str) -> None:
        self._delete(path_of("offerings", name))

    def driver_bundles(self) -> list[Json]:
        return self._list(path_of("driver-bundles"))

    def add_driver_bundle(self, wanted: Body) -> Json:
        """``source``: an absolute path on the server's machine; ``signature`` and ``key``: minisign's texts."""
        bundle: Json = self._post(path_of("driver-bundles"), wanted)
        return bundle

    def remove_driver_bundle(self, sha256: str) -> None:
        self._delete(path_of("driver-bundles", sha256))

    def driver_lock(self) -> Json:
        """``site`` and ``groups``."""
        found: Json = self._get(path_of("driver-lock"))
        return found

    def put_driver_lock(self, wanted: Body) -> Json:
        lock: Json = self.connection.call("PUT", path_of("driver-lock"), wanted)
        return lock

    def plan_mig_layout(self, host: str, entries: Sequence[Body]) -> list[Json]:
        """For each GPU that the entries speak of."""
        found: list[Json] = self._post(path_of("hosts", host, "mig-layout", "plan"), {"entries": list(entries)})
        return found

    def apply_mig_layout(self, host: str, entries: Sequence[Body]) -> Json:
        started: Json = self.connection.call("PUT", path_of("hosts", host, "mig-layout"), {"entries": list(entries)})
        return started

    def release_mig_layout(self, host: str, gpu: str | None) -> Json:
        started: Json = self._delete(path_of("hosts", host, "mig-layout"), gpu=gpu)
        return started

    def driver_check(self, host_driver: str | None) -> Json:
        """``rows``; with ``host_driver`` VMs are judged as if every host had that one."""
        found: Json = self._get(path_of("driver-check"), host_driver=host_driver)
        return found

    def start_driver_upgrade(self, wanted: Body) -> Json:
        upgrade: Json = self._post(path_of("driver-upgrade"), wanted)
        return upgrade

    def driver_upgrade(self) -> Json:
        """The newest one, with how far each host is."""
        upgrade: Json = self._get(path_of("driver-upgrade"))
        return upgrade

    def change_driver_upgrade(self, what: str) -> Json:
        """``what``: pause, resume or abort."""
        upgrade: Json = self._post(path_of("driver-upgrade", what))
        return upgrade

    def set_guest_driver(self, image: str, version: str | None) -> Json:
        path = path_of("images", image, "guest-driver")
        changed: Json = self.connection.call("PUT", path, {"version": version})
        return changed

    def images(self) -> list[Json]:
        return self._list(path_of("images"))

    def add_image(self, wanted: Body) -> Json:
        image: Json = self._post(path_of("images"), wanted)
        return image

    def remove_image(self, name: str) -> None:
        self._delete(path_of("images", name))

    def networks(self) -> list[Json]:
        return self._list(path_of("networks"))

    def network(self, name: str) -> Json:
        found: Json = self._get(path_of("networks", name))
        return found

    def image(self, name: str) -> Json:
        found: Json = self._get(path_of("images", name))
        return found

    def add_network(self, wanted: Body) -> Json:
        network: Json = self._post(path_of("networks"), wanted)
        return network

    def operations(
        self, *, active: bool = False, limit: int = 100, subject: str | None = None, beginning: str | None = None
    ) -> list[Json]:
        """The newest, at most so many, over as many pages as that takes. ``subject``: only about what has this id or
        had this name (``tenant/name`` of a VM). ``beginning``: how the id begins."""
        wanted = {"active": "true" if active else None, "subject": subject, "beginning": beginning}
        return self.connection.pages(path_of("operations"), wanted, at_most=limit)

    def operation(self, operation_id: str, *, wait_s: float | None = None, since: int | None = None) -> Json:
        """With ``wait_s``: answers when it differs from revision ``since``, is finished, or the time is over."""
        found: Json = self._get(path_of("operations", operation_id), wait=wait_s, since=since)
        return found

    def retry_operation(self, operation_id: str) -> Json:
        found: Json = self._post(path_of("operations", operation_id, "retry"))
        return found

    def abandon_operation(self, operation_id: str) -> Json:
        found: Json = self._post(path_of("operations", operation_id, "abandon"))
        return found

    def cancel_operation(self, operation_id: str) -> Json:
        found: Json = self._post(path_of("operations", operation_id, "cancel"))
        return found

    def capacity(self, question: Body) -> Json:
        """``rows``."""
        found: Json = self._get(path_of("capacity"), **question)
        return found

    def explain(self, question: Body) -> Json:
        found: Json = self._get(path_of("explain"), **question)
        return found

    def drain_plan(self, host: str) -> Json:
        """``moves`` and ``stays``."""
        found: Json = self._get(path_of("hosts", host, "drain-plan"))
        return found

    def compaction_plan(self) -> Json:
        """``moves`` and ``freed``."""
        found: Json = self._get(path_of("compaction-plan"))
        return found

    def gpu_map(self, tenant: str | None = None) -> Json:
        """``gpus``: all of them, read in pages."""
        return {"gpus": self.connection.pages(path_of("gpu-map"), {"tenant": tenant}, member="gpus")}
