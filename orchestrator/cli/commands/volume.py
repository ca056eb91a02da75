# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl volume …``"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.commands import volume_snapshot
from orchestrator.cli.commands.volume_parts import Name, OfPool, finish, volume_name
from orchestrator.cli.complete import hosts, vms
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import (
    AllTenants,
    Description,
    Label,
    ListTenant,
    Selector,
    Sort,
    Tenant,
    Unlabel,
    Wait,
    listed_tenant,
    of_snapshot,
    vm_name,
)
from orchestrator.cli.progress import follow
from orchestrator.cli.said import SAID, need_something, said_by, said_of
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, age, field, show_list, size
from orchestrator.cli.tree import new_group
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.domain import MAX_BYTES_PER_S, MIN_BYTES_PER_S, DiskLimits
from orchestrator.core.names import check_name
from orchestrator.core.units import parse_size, show_size
from orchestrator.core.vms.vm import disk_bytes

app = new_group("Data volumes: disks that stay when the VM goes that has them.")

COLUMNS = (
    field("NAME", "name", Fit.WHOLE),
    field("TENANT", "tenant", spare=True),
    size("SIZE", "size_bytes"),
    field("STATE", "state", Fit.WHOLE),
    Column("VM", lambda volume: shown(volume["vm"] or ", ".join(volume.get("read_by", ())) or None)),
    field("HOST", "host"),
    field("POOL", "pool", spare=True),
    field("ENCRYPTION", "encryption", spare=True),
    age(),
    *SAID,
)


def _host_name(text: str | None) -> str | None:
    return None if text is None else check_name(text, what="host")


NewName = Annotated[str, typer.Argument(help="Name of the new volume.", callback=volume_name)]
OfVm = Annotated[
    str, typer.Argument(metavar="VM", help="Name of the VM, or TENANT/NAME.", autocompletion=vms, callback=vm_name)
]
Size = Annotated[
    str | None,
    typer.Option("--size", help="What the guest sees of it, for example 20GiB; of a snapshot or backup: as large."),
]
FromSnapshot = Annotated[
    str | None,
    typer.Option(
        "--from-snapshot",
        metavar="VOLUME/SNAPSHOT",
        help="With what is on it, where it lies, or in --pool.",
        callback=of_snapshot("volume"),
    ),
]
FromBackup = Annotated[
    str | None,
    typer.Option(
        "--from-backup", metavar="BACKUP[/VOLUME]", help="With what is in that backup; of one volume: leave VOLUME out."
    ),
]
OnHost = Annotated[
    str | None,
    typer.Option(
        "--host", help="Where it lies (operators); else where its first VM goes.", autocompletion=hosts,
        callback=_host_name,
    ),
]  # fmt: skip


MaxBytes = Annotated[
    str | None,
    typer.Option(
        "--max-bytes-per-s",
        help="What its VM may read and write of it in a second, like 200MiB; 0: as its offering says.",
    ),
]
Encrypted = Annotated[
    bool, typer.Option("--encrypted", help="Its file is, with a key of its own, which no host keeps; not in a pool.")
]
MaxIops = Annotated[int | None, typer.Option("--max-iops", help="The same in requests; 0: as its offering says.")]


def _limits(max_bytes_per_s: str | None, max_iops: int | None) -> dict[str, int]:
    limits = {} if max_iops is None else {"max_iops": max_iops}
    if max_bytes_per_s is not None:
        least, most = MIN_BYTES_PER_S, MAX_BYTES_PER_S
        size = 0 if max_bytes_per_s == "0" else parse_size(
            max_bytes_per_s, field="max_bytes_per_s", at_least=least, at_most=most
        )  # fmt: skip
        limits["max_bytes_per_s"] = size
    return limits


def _limits_of(volume: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Nothing of one that has none. Older servers do not say."""
    limits = DiskLimits(bytes_per_s=volume.get("max_bytes_per_s") or 0, iops=volume.get("max_iops") or 0)
    return [("limits", limits.words)] if limits.words else []


def details(volume: Mapping[str, Any]) -> list[str]:
    return render_details(
        [
            ("name", shown(volume["name"])),
            ("tenant", shown(volume["tenant"])),
            ("size", show_size(volume["size_bytes"])),
            ("state", shown(volume["state"])),
            ("VM", shown(volume["vm"] or "none")),
            *([("read by", shown(", ".join(readers)))] if (readers := volume.get("read_by")) else []),
            ("host", shown(volume["host"] or ("any" if volume["pool"] else "that of the first VM that gets it"))),
            ("pool", shown(volume["pool"] or "none")),
            *([("encryption", shown(kind))] if (kind := volume.get("encryption", "none")) != "none" else []),
            *_limits_of(volume),
            ("id", shown(volume["id"])),
            ("created", show_time(volume["created_at"])),
            *said_of(volume),
        ]
    )


@app.command("create")
def create(
    ctx: typer.Context, name: NewName, size: Size = None, on_host: OnHost = None, pool: OfPool = None,
    max_bytes_per_s: MaxBytes = None, max_iops: MaxIops = None, from_snapshot: FromSnapshot = None,
    from_backup: FromBackup = None, encrypted: Encrypted = False, tenant: Tenant = "default", wait: Wait = True,
) -> None:  # fmt: skip
    """Create a data volume. Its host is that of the first VM that has it; it never moves from there, but in a pool."""
    session = session_of(ctx)
    wanted: dict[str, object] = {"name": name} | ({} if size is None else {"size_bytes": disk_bytes(size)})
    wanted |= _limits(max_bytes_per_s, max_iops)
    places = _places(on_host, pool)
    if from_backup is not None:
        _check_alone(from_snapshot, encrypted=encrypted)
        backup, of_volume = _of_backup(from_backup)
        begun = session.client.volume_of_backup(backup, wanted | places | of_volume, tenant)
        finish(session, name, begun, f"{name} has what is in backup {from_backup}", session.format, wait=wait)
        return
    if from_snapshot is not None:
        if on_host is not None or encrypted:
            hint = "leave out '--host' and '--encrypted'"
            raise InvalidInput("volume.host_and_snapshot", "it lies where the snapshot does, or in a pool", hint=hint)
        source, slash, snapshot = from_snapshot.partition("/")
        if not (source and slash and snapshot):
            hint = "write --from-snapshot VOLUME/SNAPSHOT; 'vgpuctl volume snapshot list VOLUME' lists them"
            raise InvalidInput("cli.usage", "--from-snapshot takes a volume and its snapshot", hint=hint)
        check_name(source, what="volume")
        wanted["snapshot"] = check_name(snapshot, what="snapshot")
        wanted |= {} if pool is None else {"pool": pool}
        begun = session.client.copy_volume(source, wanted, tenant)
        finish(session, name, begun, f"{name} has what is on {from_snapshot}", session.format, wait=wait)
        return
    if size is None:
        raise InvalidInput("volume.no_size", "a volume has a size", hint="add '--size 20GiB'")
    wanted |= places | {"tenant": tenant}
    if encrypted:
        wanted["encrypted"] = True
    volume = session.client.create_volume(wanted)
    show(volume, session.format, lambda: details(volume))


def _places(host: str | None, pool: str | None) -> dict[str, object]:
    return {key: value for key, value in (("host", host), ("pool", pool)) if value is not None}


def _check_alone(from_snapshot: str | None, *, encrypted: bool) -> None:
    """:raises InvalidInput: ``cli.usage``"""
    if from_snapshot is not None or encrypted:
        hint = "leave out '--from-snapshot' and '--encrypted'"
        raise InvalidInput("cli.usage", "a volume of a backup is of nothing else, and not encrypted", hint=hint)


def _of_backup(text: str) -> tuple[str, dict[str, object]]:
    """Backup, and which volume in it, if that is said. :raises InvalidInput: ``volume.name_invalid``"""
    backup, slash, volume = text.partition("/")
    return backup, {"volume": check_name(volume, what="volume")} if slash else {}


@app.command("list")
def list_volumes(
    ctx: typer.Context,
    tenant: ListTenant = None,
    all_tenants: AllTenants = False,
    selector: Selector = None,
    sort: Sort = None,
) -> None:
    """List data volumes and which VM has them."""
    only = listed_tenant(ctx, tenant, all_tenants=all_tenants)
    show_list(session_of(ctx).client.volumes(only, selector), COLUMNS, format_of(ctx), "no volumes", sort)


@app.command("show")
def show_volume(ctx: typer.Context, name: Name, tenant: Tenant = "default") -> None:
    """Show one data volume."""
    volume = session_of(ctx).client.volume(name, tenant)
    show(volume, format_of(ctx), lambda: details(volume))


@app.command("set")
def set_volume(
    ctx: typer.Context,
    name: Name,
    tenant: Tenant = "default",
    description: Description = None,
    label: Label = None,
    unlabel: Unlabel = None,
    max_bytes_per_s: MaxBytes = None,
    max_iops: MaxIops = None,
) -> None:
    """Set a data volume's description, labels and limits."""
    session, changes = session_of(ctx), said_by(description, label, unlabel)
    limits = _limits(max_bytes_per_s, max_iops)
    need_something(changes | limits, ", --max-bytes-per-s, --max-iops")
    if limits and (operation := session.client.limit_volume(name, limits, tenant)["operation"]):
        follow(session, operation)
    client = session.client
    volume = client.describe_volume(name, changes, tenant) if changes else client.volume(name, tenant)
    show(volume, format_of(ctx), lambda: details(volume))


@app.command("attach")
def attach(
    ctx: typer.Context,
    name: Name,
    vm: OfVm,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="The VM only reads it, as other VMs may at the same time.")
    ] = False,
    tenant: Tenant = "default",
    wait: Wait = True,
) -> None:
    """Attach a data volume to a VM, which may run."""
    session = session_of(ctx)
    started = session.client.attach_volume(name, vm, tenant, read_only=read_only)
    finish(session, name, started, f"{name} is attached to {vm}", session.format, wait=wait)


@app.command("detach")
def detach(ctx: typer.Context, name: Name, vm: OfVm, tenant: Tenant = "default", wait: Wait = True) -> None:
    """Take a data volume from a VM, which may run; what is on it stays."""
    session = session_of(ctx)
    started = session.client.detach_volume(name, vm, tenant)
    finish(session, name, started, f"{name} is detached from {vm}", session.format, wait=wait)


@app.command("resize")
def resize(
    ctx: typer.Context,
    name: Name,
    size_after: Annotated[str, typer.Option("--size", help="How large it becomes, for example 40GiB.")],
    tenant: Tenant = "default",
    wait: Wait = True,
) -> None:
    """Make a data volume larger, also while a VM runs that has it."""
    session, size_bytes = session_of(ctx), disk_bytes(size_after)
    started = session.client.resize_volume(name, size_bytes, tenant)
    finish(session, name, started, f"{name} has {show_size(size_bytes)}", session.format, wait=wait)


@app.command("delete")
def delete(ctx: typer.Context, name: Name, tenant: Tenant = "default", yes: Yes = False, wait: Wait = True) -> None:
    """Delete a data volume that no VM has, with what is on it."""
    session = session_of(ctx)
    session.client.volume(name, tenant)
    confirm("delete volume", [name], yes=yes)
    finish(session, name, session.client.delete_volume(name, tenant), f"{name} is deleted", session.format, wait=wait)


app.add_typer(volume_snapshot.app, name="snapshot")
