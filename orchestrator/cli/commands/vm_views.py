# SPDX-License-Identifier: Apache-2.0
"""VMs shown: one, several, and what happened to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from orchestrator.cli.ages import seconds_of, show_time, waits_for
from orchestrator.cli.complete import hosts, profiles
from orchestrator.cli.guest_results import guest_details
from orchestrator.cli.moves import Moves, MovesLegally, MovesTo, move_lines
from orchestrator.cli.output import render_details, shown
from orchestrator.cli.parameters import AllTenants, ListTenant, Name, Selector, Sort, Tenant, listed_tenant
from orchestrator.cli.picking import matching
from orchestrator.cli.readings import Readings, next_frame_s, reading_lines
from orchestrator.cli.session import CliSession, Format, session_of
from orchestrator.cli.table import Column, Fit, Listing, age, field, show_newest, size, time
from orchestrator.cli.watch import View, Watch, list_view, show_view
from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.hosts.features import FEATURES
from orchestrator.core.labels import parse_selector, show_labels
from orchestrator.core.maintenance.leaving import CHOSEN, STOP, WAIT
from orchestrator.core.names import check_name
from orchestrator.core.units import GIB, MIB, show_size
from orchestrator.core.vms.disk_snapshot import QUIESCED
from orchestrator.core.vms.vm import VmState

if TYPE_CHECKING:
    from orchestrator.client.client import Client


def state_of(vm: Mapping[str, Any]) -> str:
    """``stopped (lease over)`` of one that is deallocated, ``stopped (suspended)`` of one whose memory is kept,
    ``unknown (was running)`` of one whose host is silent."""
    deallocated = vm["deallocated"] if vm["suspended_bytes"] is None else "suspended"
    if vm["unknown_since"] is not None and vm["state"] != "lost":
        return f"unknown (was {shown(vm['state'])})"
    return (
        shown(vm["state"]) if deallocated is None else f"{shown(vm['state'])} ({shown(deallocated).replace('_', ' ')})"
    )


def _gpus(vm: Mapping[str, Any]) -> str:
    """Their addresses, which tenants are not told."""
    return shown([device["gpu"] for device in vm["devices"] if device["gpu"] is not None])


COLUMNS: Final = (
    field("NAME", "name", Fit.WHOLE),
    field("TENANT", "tenant", Fit.WHOLE),
    Column("STATE", state_of, Fit.WHOLE),
    field("PROFILE", "profile"),
    field("HOST", "host", Fit.WHOLE, spare=True),
    Column("GPU", _gpus, Fit.WHOLE, spare=True),
    field("ADDRESS", "addresses", Fit.WHOLE, spare=True),
    time("LEASE END", "lease_end", wide=True),
    age(),
    field("VCPUS", "vcpus", wide=True),
    size("MEMORY", "memory_mib", MIB, wide=True),
    field("IMAGE", "image", wide=True),
    field("PRIORITY", "priority", wide=True),
    Column("LABELS", lambda vm: shown(show_labels(vm["labels"])), wide=True),
    field("PROTECTED", "protected", wide=True),
)


_TAKEN: Final = {None: "not taken to its end", "stopped": "of the stopped VM", "running": "while it ran"}


def taken(row: Mapping[str, Any]) -> str:
    """Of a snapshot or backup: what its VM was. Older servers do not say what was frozen."""
    frozen = ", frozen" if row.get("quiesced") == QUIESCED else ""
    return f"{_TAKEN[row['taken_of']]}{frozen}"


def _snapshots(vm: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Older servers do not say."""
    lines = [f"{snapshot['name']} ({taken(snapshot)})" for snapshot in vm.get("snapshots") or ()]
    return [("snapshots", shown(lines))] if lines else []


def _on(place: str | None) -> str:
    return "" if place is None else f" on {place}"


def details(
    vm: Mapping[str, Any],
    waits: str | None = None,
    subnets: Mapping[str, str | None] | None = None,
    problems: Iterable[str] = (),
    guest: Iterable[tuple[str, str]] = (),
) -> list[str]:
    """A VM for people; ``waits``: for which host its operation waits; ``subnets``: of its networks, by name;
    ``problems``: what doctor has found of it; ``guest``: what was done in its guest."""
    devices = [
        f"{device['gpu_model'] or device['type_name']} ({device['kind']}){_on(device['parent'])}"
        for device in vm["devices"]
    ]
    return render_details(
        [
            ("name", shown(vm["name"])),
            ("tenant", shown(vm["tenant"])),
            ("state", state_of(vm)),
            *([] if vm["suspended_bytes"] is None else [("suspended", f"{show_size(vm['suspended_bytes'])} of disk")]),
            *(("problem", shown(problem)) for problem in problems),
            *([] if vm["unknown_since"] is None else [("not seen since", show_time(vm["unknown_since"]))]),
            ("host", shown(vm["host"])),
            ("profile", shown(vm["profile"])),
            ("device", shown(devices)),
            ("GPU", _gpus(vm)),
            ("addresses", shown(vm["addresses"])),
            *([("floating", shown(vm["floating_addresses"]))] if vm.get("floating_addresses") else []),
            (
                "image",
                shown(vm["image"]) if vm["adopted"] is None else f"adopted: it was domain {shown(vm['adopted'])}",
            ),
            ("vCPUs", shown(vm["vcpus"])),
            ("memory", show_size(vm["memory_mib"] * MIB)),
            ("disk", _disk(vm["disk_bytes"])),
            *([("disk limits", DiskLimits(**limits).words)] if (limits := vm.get("disk_limits")) else []),
            *_snapshots(vm),
            *_cards(vm, subnets),
            *_nic(vm),
            *((text.label, text.of_vm) for feature, text in FEATURES.items() if vm.get(feature)),
            *([("volumes", shown(vm["volumes"]))] if vm["volumes"] else []),
            *([("pool", shown(vm["pool"]))] if vm["pool"] else []),
            ("labels", shown(show_labels(vm["labels"]))),
            *([("protected", "yes")] if vm.get("protected") else []),
            ("id", shown(vm["id"])),
            ("operation", shown(vm["operation"])),
            *([] if waits is None else [("waits for", waits)]),
            ("created", show_time(vm["created_at"])),
            ("lease end", show_time(vm["lease_end"])),
            *_maintenance(vm["maintenance"]),
            *([("GPU fault", shown(vm["gpu_fault"]))] if vm["gpu_fault"] and vm["host"] is None else []),
            ("priority", shown(vm["priority"])),
            *guest,
        ]
    )


_ACTS: Final = {
    "upgrade": "its host gets a driver",
    "drain": "its host is emptied",
    "reboot": "its host is rebooted",
    "evacuate": "its host is dead",
    "defragment": "VMs move together",
}


def _maintenance(planned: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if planned is None:
        return []
    opens = None if planned["opens_at"] is None else f"opens {show_time(planned['opens_at'])}"
    ends = None if planned["ends_by"] is None else f"over by {show_time(planned['ends_by'])}"
    times = ", ".join(filter(None, [opens, ends]))
    at = f" ({times})" if times else ""
    then = "moved, and started again" if planned["moves"] else "and started again"
    when = {
        WAIT: f"which waits until its users stop it{at}",
        CHOSEN: f"stopped when its user has chosen{at}, {then}",
        "live": f"moved while it runs{at}",
        STOP: f"stopped in its host's turn{at}, {then}",
    }
    window = f"stopped in {shown(planned['policy'])} UTC{at}, {then}"
    reason = f"; {shown(planned['reason'])}" if planned["reason"] else ""
    return [("maintenance", f"{_ACTS[planned['act']]}: {when.get(planned['policy'], window)}{reason}")]


def _cards(vm: Mapping[str, Any], subnets: Mapping[str, str | None] | None) -> list[tuple[str, str]]:
    """Of several, each with its hardware address, its network and the addresses there."""
    if not vm["more_networks"]:
        return [("network", shown(vm["network"]))]
    return [
        (
            f"card {number}",
            shown([card["network"], card["mac"], *_addresses_of(card, vm, subnets or {})]),
        )
        for number, card in enumerate(vm["cards"], start=1)
    ]


def _nic(vm: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Nothing of a VM without a function of a network card of its host."""
    nic = vm.get("nic_function")
    if nic is None:
        return []
    where = "under its GPU's PCIe switch" if nic["under_switch"] else "on its GPU's NUMA node"
    function = f", {shown(nic['function'])}" if nic["function"] else ""
    return [("network function", f"{shown(nic['mac'])}, {where}{function}")]


def _addresses_of(card: Mapping[str, Any], vm: Mapping[str, Any], subnets: Mapping[str, str | None]) -> list[str]:
    own = [address for address in (card["address"], card["address6"]) if address]
    return own or _addresses_in(subnets.get(card["network"]), vm["addresses"])


def _addresses_in(subnet: str | None, addresses: Iterable[str]) -> list[str]:
    inside = ip_network(subnet) if subnet else None
    return [address for address in addresses if inside is not None and ip_address(address) in inside]


def _disk(size: int) -> str:
    return show_size(size) if size % MIB == 0 else f"{size / GIB:.2f}GiB"


WORKED_OUT_S: Final = 60.0
"""A stop that is planned, or where it may move, is no event of the VM: it is worked out of hosts, windows and the
time."""


def show_vm(
    ctx: typer.Context, name: Name, tenant: Tenant = "default", readings: Readings = False, moves: Moves = False,
    host: MovesTo = None, legal: MovesLegally = None, watch: Watch = False,
) -> None:  # fmt: skip
    """Show one VM."""
    session = session_of(ctx)
    if not moves and (host is not None or legal is not None):
        raise InvalidInput("cli.usage", "--host and --legal are about where it may move", hint="add --moves")

    def read_view() -> View:
        vm = session.client.vm(name, tenant)
        busy = vm["operation"] if vm["state"] not in {"running", "stopped", "lost", "stuck"} else None
        waits = waits_for(session.client.operation(busy)) if busy and session.format is Format.TABLE else None
        guest = session.client.provisioned(name, tenant)
        several = session.client.networks(tenant) if vm["more_networks"] and session.format is Format.TABLE else []
        subnets = {known["name"]: known["subnet"] for known in several if known["tenant"] in {None, tenant}}
        problems = _problems(session, vm) if session.format is Format.TABLE else []
        now = session.client.vm_readings(name, tenant) if readings else None
        data: dict[str, Any] = {**vm, "provisioned": guest}
        if now is not None:
            data["readings"] = [dict(reading) for reading in now["readings"]]
        moves_now = session.client.vm_moves(name, tenant, host=host, legal=legal) if moves else None
        if moves_now is not None:
            data["moves"] = moves_now

        def lines() -> list[str]:
            drawn = details(vm, waits, subnets, problems, guest_details(guest))
            drawn += [] if now is None else reading_lines(now["age_s"], now["readings"])
            return [*drawn, *(() if moves_now is None else move_lines(moves_now))]

        about = frozenset({str(vm["id"]), f"{vm['tenant']}/{vm['name']}"})
        good_s = WORKED_OUT_S if now is None else next_frame_s([now["age_s"]])
        return View(data=data, lines=lines, about=about, good_s=good_s)

    show_view(session, read_view, watch=watch, nouns=("vm", "operation", "step", "finding"))


_OLDER_QEMU: Final = "host.older_qemu"
"""One finding for all VMs of a host."""


def _problems(session: CliSession, vm: Mapping[str, Any]) -> list[str]:
    """As doctor has found them last. Who may not know of hosts is told none."""
    if vm["host"] is None:
        return []
    findings = session.client.findings(vm["host"])
    own = [f"{_observed(finding)} ({finding['code']})" for finding in findings if finding["vm"] == vm["id"]]
    codes = {finding["code"] for finding in findings}
    if _OLDER_QEMU in codes and vm["id"] in session.client.host(vm["host"])["older_qemu"]:
        own.append(f"runs by a QEMU that its host has replaced, until it moves or restarts ({_OLDER_QEMU})")
    return own


def _observed(finding: Mapping[str, Any]) -> str:
    """Of what is not there at all also what it would be."""
    return f"{finding['wanted']} is wanted, there is none" if finding["observed"] == "none" else finding["observed"]


def list_vms(
    ctx: typer.Context,
    pattern: Annotated[
        str | None, typer.Argument(metavar="[PATTERN]", help="Only those whose names fit, like 'web-*'.")
    ] = None,
    tenant: ListTenant = None,
    all_tenants: AllTenants = False,
    state: Annotated[VmState | None, typer.Option("--state", help="Only those in this state.")] = None,
    on_host: Annotated[str | None, typer.Option("--host", help="Only those there.", autocompletion=hosts)] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", help="Only those made with it.", autocompletion=profiles)
    ] = None,
    label: Annotated[str | None, typer.Option("--label", help="Only those that a file with this label made.")] = None,
    selector: Selector = None,
    sort: Sort = None,
    watch: Watch = False,
) -> None:
    """List VMs."""
    session = session_of(ctx)
    if selector is not None:
        parse_selector(selector)
    if label is not None and "=" in label:
        hint = f"-l {label} picks by labels of VMs; --label names the label of a file for apply"
        raise InvalidInput("cli.usage", f"{ascii(label)[:80]} is no label of a file", hint=hint)
    only = {
        "state": state,
        "host": None if on_host is None else check_name(on_host, what="host"),
        "profile": profile,
        "label": label,
        "selector": selector,
    }
    none = (
        "no such VMs" if pattern is not None or any(only.values()) else "no VMs yet: vgpuctl create-vm NAME --profile P"
    )
    listing = Listing(columns=COLUMNS, none=none, output=session.format, sort=sort)
    whose = listed_tenant(ctx, tenant, all_tenants=all_tenants)

    def read_view() -> View:
        vms = matching(session.client.vms(whose, **only), [] if pattern is None else [pattern])
        return list_view(vms, listing, lambda vm: f"{vm['tenant']}/{vm['name']}")

    show_view(session, read_view, watch=watch, nouns=("vm",), tenant=whose)


def _seconds(operation: Mapping[str, Any]) -> float | None:
    return seconds_of({**operation, "started_at": operation["created_at"]}, None)


def _took(operation: Mapping[str, Any]) -> str:
    seconds = _seconds(operation)
    return "-" if seconds is None else f"{seconds:.1f} s"


def _said(operation: Mapping[str, Any]) -> str:
    if operation["error"]:
        return f"{shown(operation['error'].get('message'))} [{shown(operation['error'].get('code'))}]"
    return shown([*operation["warnings"], *(step["message"] for step in operation["steps"][-2:] if step["message"])])


EVENT_COLUMNS: Final = (
    field("OPERATION", "id", Fit.WHOLE, wide=True),
    age(),
    field("WHAT", "kind", Fit.WHOLE),
    field("STATE", "state", Fit.WHOLE),
    Column("TOOK", _took, exact=_seconds),
    Column("WHO", lambda operation: shown(operation["asked_by"]), Fit.WHOLE),
    Column("WHY", lambda operation: shown(operation["why"]), Fit.WRAP),
    Column("MESSAGE", _said, Fit.WRAP),
    field("AT", "created_at", wide=True),
)


def show_history(client: Client, name: str, tenant: str, limit: int, sort: str | None, output: Format) -> None:
    """What was done to a VM, newest first.

    :raises NotFound: ``vm.unknown``: nobody has ever heard of it"""
    operations: dict[str, Any] = {}
    with suppress(NotFound):  # it may have had another name
        operations = {
            operation["id"]: operation for operation in client.operations(limit=None, subject=f"{tenant}/{name}")
        }
    try:
        vm_id = client.vm(name, tenant)["id"]
        operations |= {operation["id"]: operation for operation in client.operations(limit=None, subject=vm_id)}
    except NotFound:
        if not operations:
            raise
    newest = sorted(operations.values(), key=lambda one: str(one["created_at"]), reverse=True)
    listing = Listing(columns=EVENT_COLUMNS, none=f"nothing is known of a VM {name}", output=output, sort=sort)
    show_newest(newest, len(newest), limit, listing)
