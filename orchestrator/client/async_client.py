# SPDX-License-Identifier: Apache-2.0
"""Every call of the API as a coroutine, written from client.py by ``make docs``."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from orchestrator.client.connection import path_of
from orchestrator.client.failures import failure_of
from orchestrator.core.operation import FINISHED

if TYPE_CHECKING:
    from orchestrator.client import models
    from orchestrator.client.async_connection import AsyncConnection
Body = Mapping[str, object]
POLL_S: Final = 20.0
"How long one question of :meth:`AsyncClient.wait` may take to be answered."


class AsyncClient:
    """All nouns of the API. Times are RFC 3339 in UTC, sizes MiB or bytes as their names say."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()

    async def wait(self, started: models.Started | str, *, timeout_s: float | None = None) -> models.Operation | None:
        """Until an operation is done: the one that an answer names or with this id. None: there was nothing to do.

        :raises VgpuctlError: what made it fail
        :raises TimeoutError: it goes on after ``timeout_s``
        """
        number = started if isinstance(started, str) else started["operation"]
        end = None if timeout_s is None else time.monotonic() + timeout_s
        since: int | None = None
        while number is not None:
            left = POLL_S if end is None else min(POLL_S, end - time.monotonic())
            operation = await self.operation(number, wait_s=max(0.0, left), since=since)
            if operation["state"] == "done":
                return operation
            if operation["state"] in FINISHED:
                raise failure_of(operation)
            if left <= 0:
                raise TimeoutError(f"operation {number} goes on after {timeout_s} s")
            since = operation["revision"]
        return None

    async def _get(self, path: str, **query: object) -> Any:
        return await self.connection.call("GET", path, query=query)

    async def _list(self, path: str, **query: object) -> list[Any]:
        return await self.connection.pages(path, query)

    async def _post(self, path: str, body: Body | None = None, **query: object) -> Any:
        return await self.connection.call("POST", path, body if body is not None else {}, query, keyed=True)

    async def _ask(self, path: str, body: Body, **query: object) -> Any:
        """By POST what takes no key: its answer is secret, or is to be new each time."""
        return await self.connection.call("POST", path, body, query)

    async def _delete(self, path: str, **query: object) -> Any:
        return await self.connection.call("DELETE", path, query=query)

    async def create_vm(self, wanted: Body) -> models.Started:
        """Started. The same request again attaches to the operation or shows the VM."""
        started: models.Started = await self._post(path_of("vms"), wanted)
        return started

    async def plan_vm(self, wanted: Body) -> models.VmPlan:
        """Where it would go, every host action and the domain XML; changes nothing."""
        planned: models.VmPlan = await self._ask(path_of("vms", "plan"), wanted)
        return planned

    async def vms(self, tenant: str | None = None, **only: str | None) -> list[models.Vm]:
        """``only``: ``state``, ``host``, ``profile``, ``label`` (of a file), ``selector`` of labels."""
        return await self._list(path_of("vms"), tenant=tenant, **only)

    async def label_vm(self, name: str, tenant: str, labels: Body) -> models.Vm:
        """By key; None takes one away."""
        vm: models.Vm = await self.connection.call(
            "PATCH", path_of("vms", name), {"labels": labels}, {"tenant": tenant}
        )
        return vm

    async def vm(self, name: str, tenant: str) -> models.Vm:
        found: models.Vm = await self._get(path_of("vms", name), tenant=tenant)
        return found

    async def delete_vm(self, name: str, tenant: str) -> models.Started:
        started: models.Started = await self._delete(path_of("vms", name), tenant=tenant)
        return started

    async def start_vm(self, name: str, tenant: str) -> models.Started:
        started: models.Started = await self._post(path_of("vms", name, "start"), tenant=tenant)
        return started

    async def stop_vm(self, name: str, tenant: str, *, force: bool = False) -> models.Started:
        """``force``: power off at once, without asking the guest."""
        started: models.Started = await self._post(
            path_of("vms", name, "stop"), tenant=tenant, force="true" if force else None
        )
        return started

    async def restart_vm(self, name: str, tenant: str, *, force: bool = False) -> models.Started:
        started: models.Started = await self._post(
            path_of("vms", name, "restart"), tenant=tenant, force="true" if force else None
        )
        return started

    async def extend_vm(self, name: str, tenant: str, end: Body) -> models.Vm:
        """``lease_s`` from now, or ``until``; the VM."""
        vm: models.Vm = await self._post(path_of("vms", name, "extend"), end, tenant=tenant)
        return vm

    async def tenants(self) -> list[models.Tenant]:
        return await self._list(path_of("tenants"))

    async def tenant(self, name: str) -> models.Tenant:
        found: models.Tenant = await self._get(path_of("tenants", name))
        return found

    async def create_tenant(self, name: str) -> models.Tenant:
        tenant: models.Tenant = await self._post(path_of("tenants"), {"name": name})
        return tenant

    async def delete_tenant(self, name: str) -> None:
        await self._delete(path_of("tenants", name))

    async def members(self, tenant: str) -> list[models.Member]:
        """``*``: those whose roles hold everywhere."""
        return await self._list(path_of("tenants", tenant, "members"))

    async def put_member(self, tenant: str, subject: str, role: str) -> None:
        await self.connection.call("PUT", path_of("tenants", tenant, "members"), {"subject": subject, "role": role})

    async def remove_member(self, tenant: str, subject: str) -> None:
        await self._delete(path_of("tenants", tenant, "members"), subject=subject)

    async def quota(self, tenant: str) -> list[models.QuotaLine]:
        """``*``: the pool that all tenants share."""
        found: list[models.QuotaLine] = await self._get(path_of("tenants", tenant, "quota"))
        return found

    async def change_quota(self, tenant: str, limits: Body) -> list[models.QuotaLine]:
        """By resource; None takes a limit away. Framebuffer, memory and disk in MiB."""
        path = path_of("tenants", tenant, "quota")
        found: list[models.QuotaLine] = await self.connection.call("PATCH", path, {"limits": limits})
        return found

    async def policy(self, tenant: str) -> models.Policy:
        found: models.Policy = await self._get(path_of("tenants", tenant, "policy"))
        return found

    async def change_policy(self, tenant: str, values: Body) -> models.Policy:
        """Durations in seconds; what is not named stays."""
        found: models.Policy = await self.connection.call("PATCH", path_of("tenants", tenant, "policy"), values)
        return found

    async def create_token(self, wanted: Body) -> models.NewToken:
        """``token``, which no other answer shows, and ``about``."""
        made: models.NewToken = await self._ask(path_of("tokens"), wanted)
        return made

    async def whoami(self) -> models.Caller:
        """``actor``, ``grants`` and the ``only_tenant`` they have a role in."""
        caller: models.Caller = await self._get(path_of("whoami"))
        return caller

    async def tokens(self, tenant: str) -> list[models.Token]:
        return await self._list(path_of("tokens"), tenant=tenant)

    async def revoke_token(self, token_id: str, tenant: str) -> None:
        await self._delete(path_of("tokens", token_id), tenant=tenant)

    async def audit(self, limit: int, before: int | None) -> list[models.AuditRecord]:
        """Newest first, at most so many, over as many pages as that takes."""
        return await self.connection.pages(path_of("audit"), {"before": before}, at_most=limit)

    async def export_audit(self, after: int) -> AsyncIterator[models.ExportedAuditRecord]:
        """Every record after that sequence number, oldest first."""
        while found := (await self._get(path_of("audit", "export"), after=after)):
            for one in found:
                yield one
            after = found[-1]["sequence"]

    async def verify_audit(self, head: str | None) -> models.AuditVerdict:
        verdict: models.AuditVerdict = await self._get(path_of("audit", "verify"), head=head)
        return verdict

    async def scan_host(self, address: str, port: int) -> models.HostKey:
        """The SSH host key that answers there now; nothing is pinned."""
        key: models.HostKey = await self._ask(path_of("hosts", "scan"), {"address": address, "port": port})
        return key

    async def check_host(self, name: str) -> models.HostCheck:
        """``ready`` and ``requirements``."""
        found: models.HostCheck = await self._post(path_of("hosts", name, "check"))
        return found

    async def check_new_host(self, wanted: Body) -> models.HostCheck:
        """Of a host that is not added; the key is used for this and not kept."""
        found: models.HostCheck = await self._post(path_of("hosts", "check"), wanted)
        return found

    async def add_host(self, wanted: Body) -> models.Started:
        started: models.Started = await self._post(path_of("hosts"), wanted)
        return started

    async def findings(self, host: str | None) -> list[models.Finding]:
        """What differs, as the last observations showed it."""
        return await self._list(path_of("findings"), host=host)

    async def observe_findings(self, host: str | None) -> list[models.Finding]:
        """What differs, after observing the hosts."""
        found: list[models.Finding] = await self._ask(path_of("findings", "look"), {}, host=host)
        return found

    async def repair_findings(self, host: str | None) -> models.Repairs:
        """Operations that were begun."""
        begun: models.Repairs = await self._post(path_of("findings", "repair"), host=host)
        return begun

    async def hosts(self) -> list[models.Host]:
        return await self._list(path_of("hosts"))

    async def host(self, name: str) -> models.Host:
        found: models.Host = await self._get(path_of("hosts", name))
        return found

    async def change_host(self, name: str, values: Body) -> models.Host:
        """``vcpu_overcommit``, ``memory_overcommit``, ``labels`` by key (None takes one away); others stay."""
        host: models.Host = await self.connection.call("PATCH", path_of("hosts", name), values)
        return host

    async def adopt_vm(self, wanted: Body) -> models.Started:
        started: models.Started = await self._post(path_of("vms", "adopt"), wanted)
        return started

    async def remove_host(self, name: str) -> models.Started:
        started: models.Started = await self._delete(path_of("hosts", name))
        return started

    async def forget_host(self, name: str, confirm: str) -> models.Host:
        host: models.Host = await self._post(path_of("hosts", name, "forget"), {"confirm": confirm})
        return host

    async def upgrade_agent(self, name: str) -> models.Started:
        started: models.Started = await self._post(path_of("hosts", name, "upgrade-agent"))
        return started

    async def cordon(self, name: str) -> models.Host:
        host: models.Host = await self._post(path_of("hosts", name, "cordon"))
        return host

    async def uncordon(self, name: str) -> models.Host:
        host: models.Host = await self._post(path_of("hosts", name, "uncordon"))
        return host

    async def gpus(self) -> list[models.Gpu]:
        return await self._list(path_of("gpus"))

    async def gpu(self, host: str, address: str) -> models.Gpu:
        found: models.Gpu = await self._get(path_of("gpus", host, address))
        return found

    async def profiles(self) -> list[models.Profile]:
        return await self._list(path_of("profiles"))

    async def profile(self, name: str) -> models.Profile:
        found: models.Profile = await self._get(path_of("profiles", name))
        return found

    async def offerings(self) -> list[models.Offering]:
        """Those that the site added."""
        return await self._list(path_of("offerings"))

    async def put_offering(self, wanted: Body) -> models.Offering:
        """Added, or changed where no VM has it."""
        offering: models.Offering = await self.connection.call("PUT", path_of("offerings"), wanted)
        return offering

    async def remove_offering(self, name: str) -> None:
        await self._delete(path_of("offerings", name))

    async def driver_bundles(self) -> list[models.DriverBundle]:
        return await self._list(path_of("driver-bundles"))

    async def add_driver_bundle(self, wanted: Body) -> models.DriverBundle:
        """``source``: an absolute path on the server's machine; ``signature`` and ``key``: minisign's texts."""
        bundle: models.DriverBundle = await self._post(path_of("driver-bundles"), wanted)
        return bundle

    async def remove_driver_bundle(self, sha256: str) -> None:
        await self._delete(path_of("driver-bundles", sha256))

    async def driver_lock(self) -> models.DriverLock:
        """``site`` and ``groups``."""
        found: models.DriverLock = await self._get(path_of("driver-lock"))
        return found

    async def put_driver_lock(self, wanted: Body) -> models.DriverLock:
        lock: models.DriverLock = await self.connection.call("PUT", path_of("driver-lock"), wanted)
        return lock

    async def driver_check(self, host_driver: str | None) -> models.DriverCheck:
        """``rows``; with ``host_driver`` VMs are judged as if every host had that one."""
        found: models.DriverCheck = await self._get(path_of("driver-check"), host_driver=host_driver)
        return found

    async def set_guest_driver(self, image: str, version: str | None) -> models.Image:
        path = path_of("images", image, "guest-driver")
        changed: models.Image = await self.connection.call("PUT", path, {"version": version})
        return changed

    async def images(self) -> list[models.Image]:
        return await self._list(path_of("images"))

    async def add_image(self, wanted: Body) -> models.Image:
        image: models.Image = await self._post(path_of("images"), wanted)
        return image

    async def remove_image(self, name: str) -> None:
        await self._delete(path_of("images", name))

    async def networks(self) -> list[models.Network]:
        return await self._list(path_of("networks"))

    async def network(self, name: str) -> models.Network:
        found: models.Network = await self._get(path_of("networks", name))
        return found

    async def image(self, name: str) -> models.Image:
        found: models.Image = await self._get(path_of("images", name))
        return found

    async def add_network(self, wanted: Body) -> models.Network:
        network: models.Network = await self._post(path_of("networks"), wanted)
        return network

    async def operations(
        self, *, active: bool = False, limit: int = 100, subject: str | None = None, beginning: str | None = None
    ) -> list[models.Operation]:
        """The newest, at most so many, over as many pages as that takes. ``subject``: only about what has this id or
        had this name (``tenant/name`` of a VM). ``beginning``: how the id begins."""
        wanted = {"active": "true" if active else None, "subject": subject, "beginning": beginning}
        return await self.connection.pages(path_of("operations"), wanted, at_most=limit)

    async def operation(
        self, operation_id: str, *, wait_s: float | None = None, since: int | None = None
    ) -> models.Operation:
        """With ``wait_s``: answers when it differs from revision ``since``, is finished, or the time is over."""
        found: models.Operation = await self._get(path_of("operations", operation_id), wait=wait_s, since=since)
        return found

    async def retry_operation(self, operation_id: str) -> models.Operation:
        found: models.Operation = await self._post(path_of("operations", operation_id, "retry"))
        return found

    async def abandon_operation(self, operation_id: str) -> models.Operation:
        found: models.Operation = await self._post(path_of("operations", operation_id, "abandon"))
        return found

    async def cancel_operation(self, operation_id: str) -> models.Operation:
        found: models.Operation = await self._post(path_of("operations", operation_id, "cancel"))
        return found

    async def capacity(self, question: Body) -> models.Capacity:
        """``rows``."""
        found: models.Capacity = await self._get(path_of("capacity"), **question)
        return found

    async def explain(self, question: Body) -> models.Explanation:
        found: models.Explanation = await self._get(path_of("explain"), **question)
        return found

    async def drain_plan(self, host: str) -> models.DrainPlan:
        """``moves`` and ``stays``."""
        found: models.DrainPlan = await self._get(path_of("hosts", host, "drain-plan"))
        return found

    async def compaction_plan(self) -> models.CompactionPlan:
        """``moves`` and ``freed``."""
        found: models.CompactionPlan = await self._get(path_of("compaction-plan"))
        return found

    async def gpu_map(self, tenant: str | None = None) -> models.GpuMap:
        """``gpus``: all of them, read in pages."""
        return {"gpus": await self.connection.pages(path_of("gpu-map"), {"tenant": tenant}, member="gpus")}
