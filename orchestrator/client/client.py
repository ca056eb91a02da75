# SPDX-License-Identifier: Apache-2.0
"""Every call of the API as a method. Objects are those of generated/models.py; errors are those of core/errors.py.

``generated/async_client.py`` is written from this file.
"""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.client.connection import path_of, pause_s
from orchestrator.client.disk_calls import Body
from orchestrator.client.failures import failure_of
from orchestrator.client.health_calls import HealthCalls
from orchestrator.core.errors import Retryable, Unknown
from orchestrator.core.operation import FINISHED

if TYPE_CHECKING:
    from orchestrator.client.generated import models

POLL_S: Final = 20.0
"""How long one question of :meth:`Client.wait` may take to be answered."""
SLOW: Final = "slow"
"""Why the server ends a stream that can go on where it was."""
MAX_FAILED: Final = 20
"""How often one after the other a stream is opened again in vain."""
MAX_PAUSES: Final = 6
"""Pauses between that get no longer after so many."""


def _nothing(_: bool) -> None:
    pass


class Client(HealthCalls):
    """All nouns of the API. Times are RFC 3339 in UTC, sizes MiB or bytes as their names say."""

    def wait(self, started: models.Started | str, *, timeout_s: float | None = None) -> models.Operation | None:
        """Until an operation is done: the one that an answer names or with this id. None: there was nothing to do.

        :raises VgpuctlError: what made it fail
        :raises TimeoutError: it goes on after ``timeout_s``
        """
        number = started if isinstance(started, str) else started["operation"]
        end = None if timeout_s is None else time.monotonic() + timeout_s
        since: int | None = None
        while number is not None:
            left = POLL_S if end is None else min(POLL_S, end - time.monotonic())
            operation = self.operation(number, wait_s=max(0.0, left), since=since)
            if operation["state"] == "done":
                return operation
            if operation["state"] in FINISHED:
                raise failure_of(operation)
            if left <= 0:
                raise TimeoutError(f"operation {number} goes on after {timeout_s} s")
            since = operation["revision"]
        return None

    def create_vm(self, wanted: Body) -> models.Started:
        """Started. The same request again attaches to the operation or shows the VM."""
        return self._post(path_of("vms"), wanted)

    def plan_vm(self, wanted: Body) -> models.VmPlan:
        """Where it would go, every host action and the domain XML; changes nothing."""
        return self._ask(path_of("vms", "plan"), wanted)

    def vms(self, tenant: str | None = None, **only: str | None) -> list[models.Vm]:
        """``only``: ``state``, ``host``, ``profile``, ``label`` (of a file), ``selector`` of labels."""
        return self._list(path_of("vms"), tenant=tenant, **only)

    def change_vm(self, name: str, tenant: str, values: Body) -> models.Vm:
        """``labels`` by key (None takes one away), ``protected``."""
        return self.connection.call("PATCH", path_of("vms", name), values, {"tenant": tenant})

    def vm(self, name: str, tenant: str) -> models.Vm:
        return self._get(path_of("vms", name), tenant=tenant)

    def console_log(self, name: str, tenant: str, most: int | None = None) -> bytes:
        """The last of what its serial console wrote, at most so many bytes."""
        answer: models.ConsoleLog = self._get(path_of("vms", name, "console", "log"), tenant=tenant, most=most)
        return b64decode(answer["content_base64"])

    def vm_readings(self, name: str, tenant: str, *, history: bool = False) -> models.VmReadings:
        """What it and its vGPUs do now. ``history``: with the last five minutes."""
        wanted = "true" if history else None
        return self._get(path_of("readings", "vms", name), tenant=tenant, history=wanted)

    def vm_moves(self, name: str, tenant: str, *, host: str | None = None, legal: str | None = None) -> models.Moves:
        """Where it may move: ``own``, and ``hosts``, all of them, read in pages. ``legal``: hosts that it may move to
        in this way alone: ``live``, ``suspended``, ``hibernated``, ``cold``."""
        query = {"tenant": tenant, "host": host, "legal": legal}
        return self.connection.whole(path_of("vms", name, "moves"), query, member="hosts")

    def delete_vm(self, name: str, tenant: str, gpu_was_bad: str | None = None) -> models.Started:
        return self._delete(path_of("vms", name), tenant=tenant, gpu_was_bad=gpu_was_bad)

    def start_vm(self, name: str, tenant: str) -> models.Started:
        return self._post(path_of("vms", name, "start"), tenant=tenant)

    def stop_vm(self, name: str, tenant: str, *, force: bool = False) -> models.Started:
        """``force``: power off at once, without asking the guest."""
        return self._post(path_of("vms", name, "stop"), tenant=tenant, force="true" if force else None)

    def restart_vm(self, name: str, tenant: str, *, force: bool = False) -> models.Started:
        return self._post(path_of("vms", name, "restart"), tenant=tenant, force="true" if force else None)

    def rename_vm(self, name: str, tenant: str, new: str) -> models.Started:
        """One that is stopped."""
        return self._post(path_of("vms", name, "rename"), {"name": new}, tenant=tenant)

    def move_vm(self, name: str, tenant: str, wanted: Body) -> models.Started:
        """``wanted``: ``host``, or none for where placement puts it, ``bandwidth_mib``; ``cold``: though it runs."""
        return self._post(path_of("vms", name, "move"), wanted, tenant=tenant)

    def plan_vm_move(self, name: str, tenant: str, wanted: Body) -> models.MovePlan:
        """What :meth:`move_vm` would do."""
        return self._post(path_of("vms", name, "move", "plan"), wanted, tenant=tenant)

    def attach_network(self, network: str, vm: str, tenant: str, address: str | None = None) -> models.Started:
        """One more network card of a VM, which may run. ``address``: on a network of kind ovn."""
        return self._post(path_of("vms", vm, "networks"), {"network": network, "address": address}, tenant=tenant)

    def detach_network(self, network: str, vm: str, tenant: str) -> models.Started:
        """Its last network card, which is on that network."""
        return self._delete(path_of("vms", vm, "networks", network), tenant=tenant)

    def resize_vm(self, name: str, tenant: str, wanted: Body) -> models.Started:
        """``wanted``: ``profile``; ``vcpus``, ``memory_mib``, else as it says; ``restart``: though it runs."""
        return self._post(path_of("vms", name, "resize"), wanted, tenant=tenant)

    def plan_vm_resize(self, name: str, tenant: str, wanted: Body) -> models.ResizePlan:
        """What :meth:`resize_vm` would do."""
        return self._post(path_of("vms", name, "resize", "plan"), wanted, tenant=tenant)

    def choose_vm_maintenance(self, name: str, tenant: str, at: str | None) -> models.Vm:
        """``at``: from when on it may be stopped; None: now."""
        return self._post(path_of("vms", name, "maintenance"), {"at": at}, tenant=tenant)

    def extend_vm(self, name: str, tenant: str, end: Body) -> models.Vm:
        """``lease_s`` from now, or ``until``; the VM."""
        return self._post(path_of("vms", name, "extend"), end, tenant=tenant)

    def network_path(
        self, sender: str, receiver: str, tenant: str, protocol: str = "tcp", port: int | None = None, **query: object
    ) -> models.NetworkPath:
        """Whether one VM of the tenant reaches another, and which rules say so. ``query``: ``ipv6``."""
        query |= {"sender": sender, "receiver": receiver, "protocol": protocol, "port": port, "tenant": tenant}
        return self._get(path_of("network-paths"), **query)

    def security_groups(self, tenant: str | None = None, selector: str | None = None) -> list[models.SecurityGroup]:
        """By tenant and name; of each tenant one is called ``default``. ``selector``: of labels."""
        return self._list(path_of("security-groups"), tenant=tenant, selector=selector)

    def security_group(self, name: str, tenant: str) -> models.SecurityGroup:
        return self._get(path_of("security-groups", name), tenant=tenant)

    def create_security_group(self, wanted: Body) -> models.SecurityGroup:
        """The same request again shows it."""
        return self._post(path_of("security-groups"), wanted)

    def describe_security_group(self, name: str, changes: Body, tenant: str) -> models.SecurityGroup:
        """Description and labels; those not named stay."""
        return self.connection.call("PATCH", path_of("security-groups", name), changes, {"tenant": tenant})

    def change_group_rules(self, name: str, changes: Body, tenant: str) -> models.SecurityGroup:
        """``add`` and ``remove``: rules, all of them or none."""
        return self._post(path_of("security-groups", name, "rules"), changes, tenant=tenant)

    def change_group_uses(self, name: str, changes: Body, tenant: str) -> models.SecurityGroup:
        """``add`` and ``remove``: where it is put and taken from, each with ``vm``, ``network`` or both."""
        return self._post(path_of("security-groups", name, "uses"), changes, tenant=tenant)

    def delete_security_group(self, name: str, tenant: str) -> None:
        self._delete(path_of("security-groups", name), tenant=tenant)

    def volumes(self, tenant: str | None = None, selector: str | None = None) -> list[models.DataVolume]:
        """``selector``: of labels."""
        return self._list(path_of("volumes"), tenant=tenant, selector=selector)

    def volume(self, name: str, tenant: str) -> models.DataVolume:
        return self._get(path_of("volumes", name), tenant=tenant)

    def create_volume(self, wanted: Body) -> models.DataVolume:
        """Made on its host when it is first attached. The same request again shows it."""
        return self._post(path_of("volumes"), wanted)

    def describe_volume(self, name: str, changes: Body, tenant: str) -> models.DataVolume:
        """Description and labels; those not named stay."""
        return self.connection.call("PATCH", path_of("volumes", name), changes, {"tenant": tenant})

    def delete_volume(self, name: str, tenant: str) -> models.Started:
        return self._delete(path_of("volumes", name), tenant=tenant)

    def attach_volume(self, name: str, vm: str, tenant: str, *, read_only: bool = False) -> models.Started:
        """To a VM, which may run."""
        body = {"vm": vm} | ({"read_only": True} if read_only else {})
        return self._post(path_of("volumes", name, "attach"), body, tenant=tenant)

    def detach_volume(self, name: str, vm: str, tenant: str) -> models.Started:
        """From a VM, which may run; what is on it stays."""
        return self._post(path_of("volumes", name, "detach"), {"vm": vm}, tenant=tenant)

    def resize_volume(self, name: str, size_bytes: int, tenant: str) -> models.Started:
        """To a larger size, also while a VM runs that has it."""
        return self._post(path_of("volumes", name, "resize"), {"size_bytes": size_bytes}, tenant=tenant)

    def pools(self) -> list[models.Pool]:
        return self._list(path_of("pools"))

    def pool(self, name: str) -> models.Pool:
        return self._get(path_of("pools", name))

    def create_pool(self, name: str, host: str | None) -> models.Started:
        """``host``: that writes its id; None: one that has it mounted."""
        return self._post(path_of("pools"), {"name": name} | ({} if host is None else {"host": host}))

    def delete_pool(self, name: str) -> models.Started:
        return self._delete(path_of("pools", name))

    def tenants(self, selector: str | None = None) -> list[models.Tenant]:
        """``selector``: of labels; None: all that the caller may know of."""
        return self._list(path_of("tenants"), selector=selector)

    def tenant(self, name: str) -> models.Tenant:
        return self._get(path_of("tenants", name))

    def create_tenant(self, name: str) -> models.Tenant:
        return self._post(path_of("tenants"), {"name": name})

    def describe_tenant(self, name: str, changes: Body) -> models.Tenant:
        """Description and labels; those not named stay."""
        return self.connection.call("PATCH", path_of("tenants", name), changes)

    def delete_tenant(self, name: str) -> None:
        self._delete(path_of("tenants", name))

    def members(self, tenant: str) -> list[models.Member]:
        """``*``: those whose roles hold everywhere."""
        return self._list(path_of("tenants", tenant, "members"))

    def put_member(self, tenant: str, subject: str, role: str) -> None:
        self.connection.call("PUT", path_of("tenants", tenant, "members"), {"subject": subject, "role": role})

    def remove_member(self, tenant: str, subject: str) -> None:
        self._delete(path_of("tenants", tenant, "members"), subject=subject)

    def quota(self, tenant: str) -> list[models.QuotaLine]:
        """``*``: the pool that all tenants share."""
        return self._get(path_of("tenants", tenant, "quota"))

    def change_quota(self, tenant: str, limits: Body, *, anyway: bool = False) -> list[models.QuotaLine]:
        """By resource; None takes a limit away. Framebuffer, memory and disk in MiB. ``anyway``: also of models that
        the site has no GPU of."""
        path = path_of("tenants", tenant, "quota")
        wanted = {"limits": limits, **({"anyway": True} if anyway else {})}
        return self.connection.call("PATCH", path, wanted)

    def policy(self, tenant: str) -> models.Policy:
        return self._get(path_of("tenants", tenant, "policy"))

    def change_policy(self, tenant: str, values: Body) -> models.Policy:
        """Durations in seconds; what is not named stays."""
        return self.connection.call("PATCH", path_of("tenants", tenant, "policy"), values)

    def create_token(self, wanted: Body) -> models.NewToken:
        """``token``, which no other answer shows, and ``about``."""
        return self._ask(path_of("tokens"), wanted)

    def whoami(self) -> models.Caller:
        """``actor``, ``grants`` and the ``only_tenant`` they have a role in."""
        return self._get(path_of("whoami"))

    def tokens(self, tenant: str) -> list[models.Token]:
        return self._list(path_of("tokens"), tenant=tenant)

    def revoke_token(self, token_id: str, tenant: str) -> None:
        self._delete(path_of("tokens", token_id), tenant=tenant)

    def audit(self, limit: int | None, before: int | None = None, **only: str | None) -> list[models.AuditRecord]:
        """Newest first, at most so many (None: all), over as many pages as that takes. ``actor``: only by this one, of
        a token its id or name will do; ``subject``: only about this; ``since``, ``until``: moments with their offset;
        ``refused="true"``: only refusals."""
        return self.connection.pages(path_of("audit"), {"before": before, **only}, at_most=limit)

    def export_audit(self, after: int) -> Iterator[models.ExportedAuditRecord]:
        """Every record after that sequence number, oldest first."""
        while answer := self._get(path_of("audit", "export"), after=after):
            yield from answer
            after = answer[-1]["sequence"]

    def verify_audit(self, head: str | None) -> models.AuditVerdict:
        return self._get(path_of("audit", "verify"), head=head)

    def events(
        self, *, after: str | None = None, last: int = 0, nouns: Sequence[str] = (), follow: bool = True,
        link: Callable[[bool], None] | None = None, **only: str | None,
    ) -> Iterator[models.Event | models.Gap]:  # fmt: skip
        """What happens, in its order, over as many connections as that takes, each beside the others of this client. It
        ends when all was told that has happened already; with ``follow`` never.

        ``after``: begin after the event with this id, else with the ``last`` so many; ``only``: ``tenant``, ``name``. A
        gap (its noun is ``gap``) says that some events could not be told: what is known of the fleet must be read anew.
        ``link`` is told True when a connection stands, from when on nothing is missed, and False when none can be had.
        """
        query = {"last": last, "noun": list(nouns), "wait": None if follow else 0, **only}
        tell, failed = link or _nothing, 0
        while True:
            try:
                reader = self.connection.open_events(query, after)
                stands = False
                try:
                    while (event := self.connection.next_event(reader)) is not None:
                        failed = 0
                        if "noun" not in event:
                            if not stands:
                                tell(True)
                            stands = True
                        elif event.get("reason") != SLOW:
                            yield event
                finally:
                    after = reader.last_id
                    self.connection.close_events(reader)
                if not follow:
                    return
            except (Retryable, Unknown):
                failed += 1
                if after is None or failed > MAX_FAILED:
                    raise
                tell(False)
            time.sleep(pause_s(min(failed, MAX_PAUSES)))

    def create_webhook(self, wanted: Body) -> models.NewWebhook:
        return self._ask(path_of("webhooks"), wanted)

    def webhooks(self, tenant: str) -> list[models.Webhook]:
        return self.connection.pages(path_of("webhooks"), {"tenant": tenant})

    def webhook(self, name: str, tenant: str) -> models.Webhook:
        return self._get(path_of("webhooks", name), tenant=tenant)

    def delete_webhook(self, name: str, tenant: str) -> None:
        self._delete(path_of("webhooks", name), tenant=tenant)

    def test_webhook(self, name: str, tenant: str) -> None:
        """Send it one request now.

        :raises Retryable: ``webhook.failed``; :raises InvalidInput: ``webhook.address_refused``
        """
        self._ask(path_of("webhooks", name, "test"), {}, tenant=tenant)

    def operations(
        self, *, active: bool = False, limit: int | None = 100, **only: str | None
    ) -> list[models.Operation]:
        """The newest, at most so many (None: all), over as many pages as that takes. ``active``: only those that have
        not ended, or are stuck. ``only``: ``state``, ``kind``, ``tenant``, ``subject`` (an id, a host, ``tenant/name``
        of a VM), ``beginning`` of the id."""
        wanted = {"active": "true" if active else None, **only}
        return self.connection.pages(path_of("operations"), wanted, at_most=limit)

    def operation(
        self, operation_id: str, *, wait_s: float | None = None, since: int | None = None
    ) -> models.Operation:
        """With ``wait_s``: answers when it differs from revision ``since``, is finished, or the time is over."""
        return self._get(path_of("operations", operation_id), wait=wait_s, since=since)

    def retry_operation(self, operation_id: str) -> models.Operation:
        return self._post(path_of("operations", operation_id, "retry"))

    def abandon_operation(self, operation_id: str) -> models.Operation:
        return self._post(path_of("operations", operation_id, "abandon"))

    def cancel_operation(self, operation_id: str) -> models.Operation:
        return self._post(path_of("operations", operation_id, "cancel"))

    def capacity(self, question: Body) -> models.Capacity:
        """``rows``."""
        return self._get(path_of("capacity"), **question)

    def status(self, tenant: str | None = None) -> models.Status:
        """The site counted; of one tenant what is its own."""
        return self._get(path_of("status"), tenant=tenant)

    def explain(self, question: Body) -> models.Explanation:
        return self._get(path_of("explain"), **question)

    def scrape_targets(self, tenant: str | None = None) -> list[models.ScrapeTargets]:
        """Pages with metrics, for service discovery: of all hosts, or of the tenants that the caller may know of."""
        return list(self._get(path_of("metrics", "targets"), tenant=tenant))

    def gpu_map(self, tenant: str | None = None) -> models.GpuMap:
        """``gpus``: all of them, read in pages."""
        return {"gpus": self.connection.pages(path_of("gpu-map"), {"tenant": tenant}, member="gpus")}

    def gpu_racks(self, model: str | None = None) -> models.Racks:
        """``racks``: all hosts, as columns, and how much of their GPUs is used."""
        return self._get(path_of("gpu-map", "racks"), model=model)
