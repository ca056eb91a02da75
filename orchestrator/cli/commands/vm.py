# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl vm …`` and the short verbs (``create-vm``, ``list-vms`` …)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.cli import guest_access
from orchestrator.cli.commands import events, guest, vm_move, vm_power, vm_provision, vm_resize, vm_snapshot, vm_views
from orchestrator.cli.commands.vm_views import details
from orchestrator.cli.complete import hosts, images, profiles
from orchestrator.cli.confirm import Yes
from orchestrator.cli.files import is_key_text, read_ssh_keys, read_user_data
from orchestrator.cli.output import show, shown
from orchestrator.cli.parameters import (
    Gpu,
    Label,
    Name,
    Names,
    NewNames,
    OnlyHost,
    Selector,
    Tenant,
    VmOptions,
    Wait,
    of_snapshot,
    vm_name_if_any,
    with_vm_options,
)
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.tree import new_group
from orchestrator.cli.uploading import image_left_out, tell_of_volumes
from orchestrator.cli.vm_outcome import Outcome, change_each, each, finish
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.hosts.domain import BootPolicy
from orchestrator.core.labels import parse_labels
from orchestrator.core.names import check_name
from orchestrator.core.units import parse_duration
from orchestrator.core.vms.image import check_image_name
from orchestrator.core.vms.lease import MAX_LEASE_S, parse_moment
from orchestrator.core.vms.priority import Priority

MAX_COUNT: Final = 1000
app = new_group("Create, adopt, show, start, stop and delete VMs.")


Lease = Annotated[str | None, typer.Option("--lease", help="How long it has its place, from now: 45m, 8h, 30d.")]
Boot = Annotated[BootPolicy, typer.Option("--boot-policy", help="Who starts it again after a reboot of its host.")]
Until = Annotated[str | None, typer.Option("--until", help="Or when it gives it back: 2026-12-01T10:00Z.")]


@with_vm_options
def create(
    ctx: typer.Context,
    names: NewNames,
    profile: Annotated[
        str,
        typer.Option("--profile", "-p", help="Offering, NVIDIA vGPU type or MIG profile.", autocompletion=profiles),
    ],
    tenant: Tenant = "default",
    image: Annotated[
        str | None,
        typer.Option("--image", help="Base image; may be left out when there is only one.", autocompletion=images),
    ] = None,
    *,
    from_snapshot: Annotated[
        str | None,
        typer.Option(
            "--from-snapshot",
            metavar="VM/SNAPSHOT",
            help="Its disk is a copy of this, on the same host.",
            callback=of_snapshot("vm"),
        ),
    ] = None,
    from_backup: Annotated[
        str | None,
        typer.Option("--from-backup", metavar="BACKUP", help="Its disk is what this holds: an id, or how it begins."),
    ] = None,
    vm: VmOptions,
    ssh_key: Annotated[
        list[str] | None, typer.Option("--ssh-key", help="File with OpenSSH public keys, or a key; may be repeated.")
    ] = None,
    user_data: Annotated[Path | None, typer.Option("--user-data", help="File for cloud-init.")] = None,
    on_host: OnlyHost = None,
    gpu: Gpu = None,
    start: Annotated[bool, typer.Option("--start/--no-start", help="Start it, or only define it.")] = True,
    boot_policy: Boot = "local",
    priority: Annotated[
        Priority, typer.Option("--priority", help="How important it is; the tenant's policy says what is allowed.")
    ] = "normal",
    count: Annotated[
        int | None, typer.Option("--count", min=1, max=MAX_COUNT, help="So many: NAME-1, NAME-2 …, or {n} in NAME.")
    ] = None,
    preempt: Annotated[
        bool, typer.Option("--preempt", help="When it does not fit, stop VMs of lower priority; they keep their disks.")
    ] = False,
    with_moves: Annotated[
        bool, typer.Option("--with-moves", help="When it does not fit, move up to three VMs while they run, and wait.")
    ] = False,
    label: Label = None,
    protect: Annotated[
        bool, typer.Option("--protect", help="It is not deleted until 'vm set --no-protect' is said.")
    ] = False,
    lease: Lease = None,
    until: Until = None,
    provision: Annotated[
        list[str] | None,
        typer.Option("--provision", metavar="ROLE", help="Then run this role in its guest, too; may be repeated."),
    ] = None,
    no_provision: Annotated[
        bool, typer.Option("--no-provision", help="Leave out the roles that the offering asks for.")
    ] = False,
    var: vm_provision.Var = None,
    secret_file: vm_provision.SecretFile = None,
    licence_token: vm_provision.LicenceToken = None,
    wait: Wait = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, change nothing.")] = False,
) -> None:
    """Create a VM with a vGPU. The same command again attaches to what is going on."""
    session = session_of(ctx)
    roles = vm_provision.Said.of(provision, no_provision, var, secret_file, licence_token)
    wanted: dict[str, object] = {
        "tenant": tenant,
        "profile": _some(profile, "--profile"),
        "ssh_keys": [key for text in ssh_key or () for key in read_ssh_keys(text)],
        "start": start,
        "boot_policy": boot_policy,
        "priority": priority,
        "preempt": preempt,
        "labels": parse_labels(label or ()),
    }
    wanted |= vm.asked() | _end(lease, until) | roles.asked()
    if with_moves:
        wanted["with_moves"] = True
    if protect:
        wanted["protected"] = True
    if user_data is not None:
        wanted["user_data"] = read_user_data(user_data)
    if on_host is not None:
        wanted["host"] = check_name(on_host, what="host")
    if gpu is not None:
        wanted["gpu"] = parse_pci_address(gpu)
    wanted |= {
        name: _some(source, f"--{name.replace('_', '-')}")
        for name, source in (("from_snapshot", from_snapshot), ("from_backup", from_backup))
        if source is not None
    }
    wanted["image"] = (
        image_left_out(session.client, tenant, from_snapshot, from_backup) if image is None else check_image_name(image)
    )
    chosen = counted_names(names, count)
    tell_of_volumes(session.client, tenant, from_backup)
    if dry_run:
        if len(chosen) > 1:
            raise InvalidInput("cli.usage", "--dry-run plans one VM", hint=f"name one: {chosen[0]}")
        plan = session.client.plan_vm({**wanted, "name": chosen[0]})
        show(plan, session.format, lambda: _plan_lines(plan))
        return

    def begin(name: str) -> Json:
        started = session.client.create_vm({**wanted, "name": name})
        files = [Path(key) for key in ssh_key or () if not is_key_text(key)]
        with suppress(NotFound):  # made and taken back already: its operation says why
            for file in files:
                guest_access.remember_identity(session.state, session.client.vm(name, tenant)["id"], file)
        return roles.begun_on_existing(session, started, tenant)

    change_each(session, chosen, begin, tenant, wait=wait)


def counted_names(names: Sequence[str], count: int | None) -> list[str]:
    """``{n}`` in the one name, or ``-n`` after it, from 1 on; without a count as they are.

    :raises InvalidInput: ``cli.usage``, ``vm.name_invalid``
    """
    if count is None:
        if numbered := next((name for name in names if "{n}" in name), None):
            raise InvalidInput("cli.usage", f"{numbered} has a number that nothing says", hint="add --count N")
        return [check_name(name, what="vm") for name in dict.fromkeys(names)]
    (first, *more) = names
    if more:
        raise InvalidInput("cli.usage", "--count goes with one name", hint=f"give {first} alone, or no --count")
    pattern = first if "{n}" in first else f"{first}-{{n}}"
    return [check_name(pattern.replace("{n}", str(number)), what="vm") for number in range(1, count + 1)]


def _end(lease: str | None, until: str | None) -> dict[str, object]:
    """As the API takes it; what was not given is left out."""
    end: dict[str, object] = {}
    if lease is not None:
        end["lease_s"] = parse_duration(lease, field="lease", at_most_s=MAX_LEASE_S)
    if until is not None:
        parse_moment(until, field="until")
        end["until"] = until
    return end


def _some(text: str, option: str) -> str:
    if not text.strip():
        raise InvalidInput("cli.empty", f"{option} must not be empty", hint="leave it out, or give a value")
    return text


def _plan_lines(plan: Json) -> list[str]:
    gpus = plan.get("gpus") or plan["gpu"]  # an older server tells the first alone
    lines = [f"host      {shown(plan['host'])}", f"GPU       {shown(gpus)}", f"because   {shown(plan['why'])}"]
    lines += [f"preempts  {shown(name)}" for name in plan["preempts"]]
    lines += [f"moves     {shown(name)}" for name in plan.get("moves", ())]
    for number, action in enumerate(plan["actions"], start=1):
        values = ", ".join(f"{key}={_brief(value)}" for key, value in action.items() if key != "action")
        lines.append(f"{number:>3}. {action['action']}({values})")
    lines += [f"then runs {shown(plan['provision'])} in its guest"] if plan["provision"] else []
    return lines if plan["domain_xml"] is None else [*lines, "", *plan["domain_xml"].splitlines()]


def _brief(value: object) -> str:
    """Long values (the domain XML, the seed) are printed by their size; the XML follows in full."""
    text = shown(value)
    return text if len(text) <= 100 else f"<{len(str(value))} characters>"


def adopt(
    ctx: typer.Context,
    host: Annotated[str, typer.Argument(help="Host that it is on.", autocompletion=hosts)],
    domain: Annotated[str, typer.Argument(help="Name or UUID of the libvirt domain.")],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the VM; the domain's when left out.", callback=vm_name_if_any)
    ] = None,
    tenant: Tenant = "default",
    boot_policy: Boot = "local",
    although_managed_by: Annotated[
        str | None,
        typer.Option("--although-managed-by", metavar="NAME", help="Take it from the other controller that held it."),
    ] = None,
    wait: Wait = True,
) -> None:
    """Make a VM of a domain that somebody else made. Nothing of it is changed."""
    wanted: dict[str, object] = {
        "host": check_name(host, what="host"),
        "domain": _some(domain, "DOMAIN"),
        "tenant": tenant,
        "boot_policy": boot_policy,
    }
    if name is not None:
        wanted["name"] = name
    if although_managed_by is not None:
        wanted["although_managed_by"] = although_managed_by
    session = session_of(ctx)
    finish(session, session.client.adopt_vm(wanted), tenant, wait=wait)


def extend_vm(
    ctx: typer.Context,
    names: Names = None,
    lease: Lease = None,
    until: Until = None,
    selector: Selector = None,
    tenant: Tenant = "default",
    yes: Yes = False,
) -> None:
    """Make a VM's lease longer. One whose lease was over is started with start-vm then."""
    session, end = session_of(ctx), _end(lease, until)
    names_picked = vm_power.picked_vms(session, names, selector, tenant, question="extend the leases of VMs", yes=yes)
    each(session, names_picked, lambda name: session.client.extend_vm(name, tenant, end), _as_extended, wait=False)


def _as_extended(_: str, vm: Json) -> Outcome:
    return vm, details(vm)


def choose_maintenance(
    ctx: typer.Context,
    name: Name,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="From then on: 2026-12-01T22:00Z.")] = None,
    now: Annotated[bool, typer.Option("--now", help="As soon as its host's turn comes.")] = False,
    tenant: Tenant = "default",
) -> None:
    """Choose when maintenance of its host may stop a VM."""
    if now == (at is not None):
        raise InvalidInput("cli.usage", "say when, once", hint="--now, or --at 2026-12-01T22:00Z")
    if at is not None:
        parse_moment(at, field="at")
    vm = session_of(ctx).client.choose_vm_maintenance(name, tenant, at)
    show(vm, format_of(ctx), lambda: details(vm))


for _verb, _function in (
    ("create", create),
    ("delete", vm_power.delete),
    ("show", vm_views.show_vm),
    ("list", vm_views.list_vms),
    ("start", vm_power.start_vm),
    ("stop", vm_power.stop_vm),
    ("restart", vm_power.restart_vm),
    ("suspend", vm_power.suspend_vm),
    ("resume", vm_power.resume_vm),
    ("discard-suspended", vm_power.discard_suspended_vm),
    ("rename", vm_power.rename_vm),
    ("move", vm_move.move),
    ("resize", vm_resize.resize),
    ("resize-disk", vm_resize.resize_disk),
    ("set", vm_power.set_vm),
    ("events", events.events),
    ("adopt", adopt),
    ("extend", extend_vm),
    ("maintenance", choose_maintenance),
    ("console", guest.console),
    ("vnc", guest.vnc),
    ("ssh", guest.ssh),
    ("provision", vm_provision.provision),
):
    app.command(_verb)(_function)
app.add_typer(vm_snapshot.app, name="snapshot")
app.command("proxy")(guest.proxy)
