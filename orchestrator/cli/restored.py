# SPDX-License-Identifier: Apache-2.0
"""What hosts have, or know, that a restored database does not: one list, each item to be taken over or removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from orchestrator.client.client import Client
from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.hosts.host import UNSETTLED

ALL: Final = "all"
Kind = Literal["vm", "left", "operation", "gone", "runs", "differs", "lease"]
_GONE: Final = frozenset({"vm.domain_missing", "vm.volume_missing"})
_RUNS: Final = frozenset({"vm.running", "vm.not_running"})
_LEASE: Final = frozenset({"vm.lease_in_doubt"})


@dataclass(frozen=True, kw_only=True)
class Item:
    """``id``: of the VM, data volume or operation."""

    id: str
    host: str
    kind: Kind
    what: str

    @property
    def ways(self) -> str:
        """How it is settled, for people."""
        return {
            "vm": "take over, remove", "left": "remove", "operation": "take over", "gone": "start-vm or delete-vm",
            "runs": "start-vm or stop-vm", "differs": "stop-vm and start-vm, or delete-vm",
            "lease": "vm extend or stop-vm",
        }[self.kind]  # fmt: skip


def items_of(client: Client) -> tuple[Item, ...]:
    """Every host is looked at first."""
    findings: list[Any] = list(client.observe_findings(None))
    stuck: list[Any] = list(client.operations(limit=None, state="stuck"))
    items = [*_younger(findings), *_operations(stuck), *_of_known_vms(findings)]
    return tuple(sorted(items, key=lambda one: (one.host, one.kind, one.id)))


def _younger(findings: Sequence[Any]) -> Iterator[Item]:
    groups: dict[tuple[str, str], list[Any]] = {}
    for finding in findings:
        if finding["whose"] == "unknown" and finding["code"] != "host.restored":
            owner = finding["vm"] or finding["subject"].removesuffix(".raw").partition(".")[2]
            groups.setdefault((finding["host"], owner), []).append(finding)
    for (host, owner), ones in groups.items():
        is_vm = any(finding["code"] == "orphan.domain" for finding in ones)
        what = ", ".join(sorted(finding["subject"] for finding in ones))
        yield Item(id=owner, host=host, kind="vm" if is_vm else "left", what=what)


def _operations(operations: Sequence[Any]) -> Iterator[Item]:
    for operation in operations:
        if (operation["error"] or {}).get("code") == "operation.restored":
            what = f"{operation['kind'].replace('_', ' ')} of {operation['subject_name']}: had not ended in the backup"
            yield Item(id=operation["id"], host="-", kind="operation", what=what)


def _of_known_vms(findings: Sequence[Any]) -> Iterator[Item]:
    """VMs that were stopped, started, changed or deleted after the backup: what keeps their host from being settled."""
    restored = {finding["host"] for finding in findings if finding["code"] == "host.restored"}
    kinds: tuple[tuple[Kind, frozenset[str]], ...] = (
        ("gone", _GONE), ("differs", UNSETTLED - _RUNS - _LEASE), ("runs", _RUNS), ("lease", _LEASE),
    )  # fmt: skip
    items: dict[str, Item] = {}
    for kind, codes in kinds:
        for finding in findings:
            if finding["code"] in codes and finding["host"] in restored:
                what = f"{finding['subject']}: wanted is {finding['wanted']}, there is {finding['observed']}"
                items.setdefault(finding["vm"], Item(id=finding["vm"], host=finding["host"], kind=kind, what=what))
    yield from items.values()


def chosen(items: Sequence[Item], wanted: Sequence[str], *, way: Literal["take over", "remove"]) -> tuple[Item, ...]:
    """``wanted``: ids, or how they begin; ``all`` that can be taken over.

    :raises NotFound: ``restored.unknown``; :raises InvalidInput: ``restored.not_so``"""
    picked: dict[str, Item] = {}
    for text in wanted:
        if text == ALL and way == "take over":
            picked |= {item.id: item for item in items if way in item.ways}
            continue
        fits = [item for item in items if text and item.id.startswith(text)]
        if len(fits) != 1:
            raise NotFound(
                "restored.unknown",
                f"{'several items begin' if fits else 'no item begins'} with {text[:63]!a}",
                hint="'vgpuctl server settle-restored' lists them while the server runs",
            )
        if way not in fits[0].ways:
            raise InvalidInput("restored.not_so", f"{fits[0].what} is settled by: {fits[0].ways}", hint=fits[0].ways)
        picked[fits[0].id] = fits[0]
    return tuple(picked.values())


def take_over(client: Client, item: Item, tenant: str) -> str:
    """What came of it. ``tenant``: of a VM whose own is not known."""
    if item.kind == "operation":
        return str(client.retry_operation(item.id)["state"])
    started = client.adopt_vm({"host": item.host, "domain": item.id, "tenant": tenant})
    return f"taken over as {started['name']}"


def remove(client: Client, item: Item) -> str:
    """What was begun."""
    return f"begun: {', '.join(client.repair_findings(item.host, remove=item.id)['operations'])}"
