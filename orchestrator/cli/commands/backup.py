# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl backup …``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.commands import backup_policy
from orchestrator.cli.commands.vm_views import taken
from orchestrator.cli.complete import profiles
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.files import MAX_KEY_BYTES, read_keys, read_text, write_new
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import AllTenants, ListTenant, Name, OnlyHost, Sort, Tenant, Wait, listed_tenant
from orchestrator.cli.progress import follow
from orchestrator.cli.said import need_any
from orchestrator.cli.session import CliSession, format_of, session_of
from orchestrator.cli.table import Column, Fit, age, field, show_list, size
from orchestrator.cli.tree import new_group
from orchestrator.cli.vm_outcome import finish, started_lines
from orchestrator.client.connection import Json
from orchestrator.core.bucket import MAX_CA, check_bucket_url
from orchestrator.core.errors import InvalidInput
from orchestrator.core.names import check_name
from orchestrator.core.units import parse_duration, parse_size, show_size
from orchestrator.core.vms.backup import MAX_BYTES_PER_S, MIN_BYTES_PER_S
from orchestrator.core.vms.boot_check import DEFAULT_S, MAX_S

app = new_group("Backups of disks and volumes, which outlive VMs and hosts.")
target_app = new_group("Mounted directories and buckets for backups.")
app.add_typer(target_app, name="target")
app.add_typer(backup_policy.app, name="policy")


def _target_name(text: str | None) -> str | None:
    return None if text is None else check_name(text, what="backup target")


BackupId = Annotated[str, typer.Argument(metavar="BACKUP", help="Id of the backup, or how it begins.")]
TargetName = Annotated[str, typer.Argument(metavar="TARGET", help="Name of the target.", callback=_target_name)]
ToTarget = Annotated[
    str | None, typer.Option("--target", help="Target that it goes to; else the only one.", callback=_target_name)
]
Boot = Annotated[bool, typer.Option("--boot", help="Start a copy without network, and wait for its login prompt.")]
BootTimeout = Annotated[
    str | None, typer.Option("--boot-timeout", metavar="TIME", help="How long that may take, like 10m; else 5m.")
]
BootProfile = Annotated[
    str | None,
    typer.Option("--profile", "-p", help="Of the copy; else as the backup's VM.", autocompletion=profiles),
]
WithVolumes = Annotated[
    bool,
    typer.Option("--volumes/--no-volumes", help="Also of the data volumes that it writes; else of its disk alone."),
]
AndVolumes = Annotated[
    bool, typer.Option("--volumes/--no-volumes", help="Also the data volumes that the backup has; else its disk alone.")
]
OfVm = Annotated[str | None, typer.Option("--vm", help="Only those of VMs that are or were called so.")]
OldSecret = Annotated[
    Path | None,
    typer.Option("--secret-file", metavar="FILE", help="Secret of a directory that has backups; else a new one."),
]
MaxBytes = Annotated[
    str | None, typer.Option("--max-bytes-per-s", help="What each backup writes there in a second, like 50MiB; 0: any.")
]
Keys = Annotated[
    Path | None,
    typer.Option("--credentials-file", metavar="FILE", help="Key of the bucket, as in ~/.aws/credentials; - : stdin."),
]
Address = Annotated[
    str | None, typer.Option("--s3", metavar="URL", help="A bucket: https://HOST[:PORT]/BUCKET[/PREFIX].")
]
Region = Annotated[str | None, typer.Option("--region", help="Of the bucket, where its storage wants one.")]
CaFile = Annotated[
    Path | None, typer.Option("--ca-file", metavar="FILE", help="PEM of whom to trust; else whom hosts trust.")
]
OfTenant = Annotated[
    str | None, typer.Option("--of-tenant", help="What their tenant was called when they were made; else the same.")
]
SecretFile = Annotated[Path, typer.Argument(metavar="FILE", help="File that is made, for its owner alone.")]

COLUMNS: Final = (
    field("ID", "id", Fit.WHOLE),
    field("VM", "vm_name", Fit.WHOLE),
    field("TENANT", "tenant"),
    field("TARGET", "target"),
    field("POLICY", "policy"),
    Column("TAKEN", taken),
    size("SIZE", "size_bytes"),
    Column("VOLUMES", lambda backup: ", ".join(shown(each["name"]) for each in _held(backup)) or "-"),
    size("ADDED", "added_bytes"),
    field("BOOT", "boot_outcome"),
    age(),
)
TARGETS: Final = (
    field("NAME", "name", Fit.WHOLE),
    field("S3", "s3"),
    size("LIMIT", "max_bytes_per_s", text=lambda limit: f"{show_size(limit)}/s" if limit else "none"),
    age(),
)


@app.command("run")
def run(
    ctx: typer.Context, name: Name, target: ToTarget = None, volumes: WithVolumes = True, tenant: Tenant = "default",
    wait: Wait = True,
) -> None:  # fmt: skip
    """Back up a VM's disk and data volumes; it may run meanwhile.

    All volumes that it writes, and all as of one moment. Of one that runs its guest agent freezes the file systems for
    that; without one it is what a power cut would have left. Encrypted volumes are left out, and shown so.
    """
    session = session_of(ctx)
    started = session.client.create_backup(name, tenant, target, volumes=volumes)
    if not wait:
        show(started, session.format, lambda: started_lines(started), name=name)
        return
    follow(session, str(started["operation"]))
    *_, made = (
        backup
        for backup in session.client.backups(tenant)
        if backup["vm_name"] == name and backup["policy"] is None and backup["taken_of"] is not None
    )
    show(made, session.format, lambda: _lines(made), name=made["id"])


@app.command("list")
def list_backups(
    ctx: typer.Context, vm: OfVm = None, tenant: ListTenant = None, all_tenants: AllTenants = False, sort: Sort = None
) -> None:
    """List backups, also of VMs that are gone."""
    backups = session_of(ctx).client.backups(listed_tenant(ctx, tenant, all_tenants=all_tenants))
    show_list(
        [backup for backup in backups if vm in {None, backup["vm_name"]}], COLUMNS, format_of(ctx), "no backups", sort
    )


@app.command("show")
def show_backup(ctx: typer.Context, backup: BackupId, tenant: Tenant = "default") -> None:
    """Show a backup."""
    made = session_of(ctx).client.backup(backup, tenant)
    show(made, format_of(ctx), lambda: _lines(made), name=made["id"])


@app.command("restore")
def restore(
    ctx: typer.Context, name: Name, backup: BackupId, volumes: AndVolumes = True, tenant: Tenant = "default",
    yes: Yes = False, wait: Wait = True,
) -> None:  # fmt: skip
    """Put a backup in the place of a stopped VM's disk and volumes.

    Of its own VM, or, with --no-volumes, of another one that is as large. What was on them is gone. The VM has to have
    all volumes that the backup has.
    """
    session = session_of(ctx)
    confirm("replace the disk and volumes of VM" if volumes else "replace the disk of VM", [name], yes=yes)
    finish(session, session.client.restore_backup(backup, name, tenant, volumes=volumes), tenant, wait=wait)


@app.command("verify")
def verify(
    ctx: typer.Context,
    backup: BackupId,
    boot: Boot = False,
    boot_timeout: BootTimeout = None,
    profile: BootProfile = None,
    tenant: Tenant = "default",
    wait: Wait = True,
) -> None:
    """Compare all of a backup with its digests, or boot a copy of it.

    The copy is a VM without network cards, on the tenant's quota; it is removed whatever comes of it. 'backup show'
    tells what its console showed last.
    """
    session = session_of(ctx)
    if boot:
        timeout_s = parse_duration(boot_timeout or f"{DEFAULT_S}s", field="boot_timeout", at_most_s=MAX_S)
        began = session.client.boot_backup(backup, tenant, timeout_s, profile)
        _finish(session, began | {"name": backup}, "was booted", wait=wait)
        return
    if boot_timeout or profile:
        raise InvalidInput("cli.usage", "--boot-timeout and --profile go with --boot", hint="add --boot")
    _finish(session, session.client.verify_backup(backup, tenant), "is whole", wait=wait)


@app.command("delete")
def delete(
    ctx: typer.Context, backup: BackupId, tenant: Tenant = "default", yes: Yes = False, wait: Wait = True
) -> None:
    """Delete a backup; others of its VM stay whole."""
    session = session_of(ctx)
    confirm("delete backup", [backup], yes=yes)
    _finish(session, session.client.delete_backup(backup, tenant), "is deleted", wait=wait)


@target_app.command("create")
def create_target(
    ctx: typer.Context,
    name: TargetName,
    s3: Address = None,
    credentials_file: Keys = None,
    region: Region = None,
    ca_file: CaFile = None,
    secret_file: OldSecret = None,
) -> None:
    """Make a directory or a bucket known that backups go to.

    A directory is mounted on hosts at /var/lib/vgpuctl-agent/backups/TARGET.
    """
    session = session_of(ctx)
    bucket = _bucket(s3, credentials_file, region, ca_file)
    old = None if secret_file is None else read_text(secret_file, what="secret_file", max_bytes=MAX_KEY_BYTES).strip()
    made = session.client.create_backup_target(name, old, bucket)
    keep = f"keep its secret elsewhere: vgpuctl backup target secret {name} FILE"
    show(made, session.format, lambda: [f"backup target {name} is made", keep], name=name)


@target_app.command("set")
def set_target(
    ctx: typer.Context, name: TargetName, max_bytes_per_s: MaxBytes = None, credentials_file: Keys = None
) -> None:
    """Limit what backups write to a target, or give its bucket another key.

    From the next backup on. Agents that do not know it yet refuse it.
    """
    session = session_of(ctx)
    values: dict[str, object] = {} if credentials_file is None else {"keys": read_keys(credentials_file)}
    if max_bytes_per_s is not None:
        values["max_bytes_per_s"] = 0 if max_bytes_per_s == "0" else parse_size(
            max_bytes_per_s, field="max_bytes_per_s", at_least=MIN_BYTES_PER_S, at_most=MAX_BYTES_PER_S
        )  # fmt: skip
    need_any(values, "backup target set")
    target = session.client.change_backup_target(name, values)
    most = target["max_bytes_per_s"]
    limit = f"{show_size(most)} a second" if most else "no limit"
    keys = "" if credentials_file is None else ", and another key"
    show(target, session.format, lambda: [f"backups to target {name} have {limit}{keys}"], name=name)


@target_app.command("import")
def import_backups(
    ctx: typer.Context,
    name: TargetName,
    tenant: Tenant = "default",
    of_tenant: OfTenant = None,
    host: OnlyHost = None,
    wait: Wait = True,
) -> None:
    """Make backups known that a target has and this site does not know of.

    Of another site, or of a database that was lost. They are the tenant's that is named.
    """
    session = session_of(ctx)
    how = {key: value for key, value in (("of_tenant", of_tenant), ("host", host)) if value is not None}
    started = session.client.import_backups(name, tenant, **how)
    if not wait:
        show(started, session.format, lambda: [f"operation {started['operation']} works on it"], name=name)
        return
    ended = follow(session, str(started["operation"]))
    show(ended, session.format, lambda: [shown(ended["steps"][0]["message"])], name=name)


@target_app.command("list")
def list_targets(ctx: typer.Context, sort: Sort = None) -> None:
    """List backup targets."""
    show_list(session_of(ctx).client.backup_targets(), TARGETS, format_of(ctx), "no backup targets", sort)


@target_app.command("secret")
def secret(ctx: typer.Context, name: TargetName, file: SecretFile) -> None:
    """Write a target's secret to a file of yours alone.

    Without it nobody reads the target's backups. The server's own backup has it too.
    """
    session = session_of(ctx)
    text = session.client.backup_secret(name)["secret"]
    write_new({file: (f"{text}\n".encode(), 0o600)}, what="secret", named="file")
    show({"file": str(file)}, session.format, lambda: [f"the secret of backup target {name} is in {file}"], name=name)


@target_app.command("delete")
def delete_target(ctx: typer.Context, name: TargetName, yes: Yes = False) -> None:
    """Delete a target that has no backups; its directory stays."""
    session = session_of(ctx)
    confirm("delete backup target", [name], yes=yes)
    session.client.delete_backup_target(name)
    show({"deleted": name}, session.format, lambda: [f"backup target {name} is deleted"], name=name)


def _bucket(s3: str | None, keys: Path | None, region: str | None, ca_file: Path | None) -> dict[str, object] | None:
    """:raises InvalidInput: ``backup.s3_incomplete``"""
    if s3 is None and keys is None and region is None and ca_file is None:
        return None
    if s3 is None or keys is None:
        hint = "--s3 https://HOST[:PORT]/BUCKET[/PREFIX] --credentials-file FILE"
        raise InvalidInput("backup.s3_incomplete", "a bucket needs its address and a key", hint=hint)
    ca = "" if ca_file is None else read_text(ca_file, what="ca_file", max_bytes=MAX_CA)
    return {"url": check_bucket_url(s3), "region": region or "", "ca": ca, "keys": read_keys(keys)}


def _lines(backup: Json) -> list[str]:
    added = backup["added_bytes"]
    return render_details([
        ("backup", shown(backup["id"])),
        ("VM", f"{shown(backup['vm_name'])} of tenant {shown(backup['tenant'])}"),
        ("repository", f"{shown(backup['target'])}/{shown(backup['vm'])}"),
        ("image", shown(backup.get("image"))),
        ("host", shown(backup["host"])),
        ("policy", shown(backup["policy"])),
        ("taken", taken(backup)),
        ("quiesced", shown(backup.get("quiesced"))),
        ("size", show_size(backup["size_bytes"]) + ("" if added is None else f", {show_size(added)} added")),
        *_volume_lines(backup),
        ("made", show_time(backup["created_at"])),
        ("verified", "never" if backup["verified_at"] is None else show_time(backup["verified_at"])),
        ("booted", _booted(backup)),
    ])  # fmt: skip


def _held(backup: Json) -> list[Json]:
    """Older servers do not say."""
    return [volume for volume in backup.get("volumes", ()) if not volume["left_out"]]


def _volume_lines(backup: Json) -> list[tuple[str, str]]:
    return [
        ("volume", f"{shown(volume['name'])}, {show_size(volume['size_bytes'])}"
         + (f", not in it: {shown(volume['left_out'])}" if volume["left_out"] else ""))
        for volume in backup.get("volumes", ())
    ]  # fmt: skip


_OUTCOMES: Final = {
    "login": "asked for a login", "output": "did not ask for a login", "silent": "showed nothing",
    "ended": "did not go on running",
}  # fmt: skip


def _booted(backup: Json) -> str:
    """Older servers do not say."""
    if backup.get("booted_at") is None:
        return "never"
    last = f": {shown(backup['boot_line'])}" if backup["boot_line"] else ""
    return f"{show_time(backup['booted_at'])}, {_OUTCOMES.get(backup['boot_outcome'], 'unknown')}{last}"


def _finish(session: CliSession, started: Json, sentence: str, *, wait: bool) -> None:
    name = started["name"]
    if wait:
        show(follow(session, started["operation"]), session.format, lambda: [f"backup {name} {sentence}"], name=name)
    else:
        show(started, session.format, lambda: [f"operation {started['operation']} works on it"], name=name)
