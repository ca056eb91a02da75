# SPDX-License-Identifier: Apache-2.0
"""What is set, cordoned and upgraded of one host or of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final

import typer

from orchestrator.cli import enrolment
from orchestrator.cli.commands.host_views import Names, details, ended, picked_hosts
from orchestrator.cli.confirm import Yes
from orchestrator.cli.host_options import PinnableCpus, RdmaNics, checked_cpus, checked_nics
from orchestrator.cli.output import shown
from orchestrator.cli.parameters import Label, Selector, Unlabel, Wait
from orchestrator.cli.progress import follow
from orchestrator.cli.said import need_any
from orchestrator.cli.session import CliSession, session_of
from orchestrator.cli.table import Column, Fit, field, show_list
from orchestrator.cli.vm_outcome import Outcome, each
from orchestrator.client.connection import Json
from orchestrator.core.errors import Fatal, VgpuctlError, error_to_dict
from orchestrator.core.labels import parse_changes

VcpuOvercommit = Annotated[
    str | None,
    typer.Option("--vcpu-overcommit", metavar="NUMBER|site", help="vCPUs of VMs for each of the host's, 1 to 64."),
]
MemoryOvercommit = Annotated[
    str | None, typer.Option("--memory-overcommit", metavar="NUMBER|site", help="The same for memory.")]  # fmt: skip
AllowUnconfined = Annotated[bool | None, typer.Option(
    "--allow-unconfined/--refuse-unconfined", help="Put new VMs there without AppArmor and SELinux as well.",
)]  # fmt: skip


def _each(
    session: CliSession, names: Sequence[str], begin: Callable[[str], Json], end: Callable[[str, Json], Outcome]
) -> None:
    """As :func:`each`, of what is done when the server answers."""
    each(session, names, begin, end, wait=False, of="hosts")


def set_host(
    ctx: typer.Context,
    names: Names = None,
    vcpu_overcommit: VcpuOvercommit = None,
    memory_overcommit: MemoryOvercommit = None,
    allow_unconfined: AllowUnconfined = None,
    pinnable_cpus: PinnableCpus = None,
    rdma_nics: RdmaNics = None,
    label: Label = None,
    unlabel: Unlabel = None,
    selector: Selector = None,
    yes: Yes = False,
) -> None:
    """Set hosts' overcommit, confinement, CPUs, NICs, labels."""
    labels = parse_changes(label or (), unlabel or ())
    wanted: dict[str, object] = {
        "vcpu_overcommit": enrolment.overcommit(vcpu_overcommit),
        "memory_overcommit": enrolment.overcommit(memory_overcommit),
        "allow_unconfined": allow_unconfined,
        "pinnable_cpus": checked_cpus(pinnable_cpus),
        "rdma_nics": checked_nics(rdma_nics),
        "labels": labels,
    }
    need_any({name: value for name, value in wanted.items() if value is not None and value != {}}, "host set")
    session = session_of(ctx)
    hosts = picked_hosts(session, names, selector, question="set hosts", yes=yes)

    def end(name: str, host: Json) -> Outcome:
        return host, details(host) if len(hosts) == 1 else [f"{name} is set"]

    _each(session, hosts, lambda name: session.client.change_host(name, wanted), end)


def upgrade_agent(
    ctx: typer.Context, names: Names = None, selector: Selector = None, yes: Yes = False, wait: Wait = True
) -> None:
    """Install this version's agent; VMs are left alone."""
    session = session_of(ctx)

    def end(_: str, started: Json) -> Outcome:
        data, lines = ended(session, started, wait=wait)
        ready = len(hosts) > 1 and "state" in data
        return data, [f"{shown(data['name'])} is {shown(data['state'])}"] if ready else lines

    hosts = picked_hosts(session, names, selector, question="upgrade the agents of hosts", yes=yes)
    each(session, hosts, session.client.upgrade_agent, end, wait=wait, of="hosts")


def cordon(
    ctx: typer.Context,
    names: Names = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for whoever finds it cordoned.")] = None,
    selector: Selector = None,
    yes: Yes = False,
) -> None:
    """Place no new VMs on hosts."""
    session = session_of(ctx)
    hosts = picked_hosts(session, names, selector, question="cordon hosts", yes=yes)
    _each(
        session,
        hosts,
        lambda name: session.client.cordon(name, reason),
        lambda _, host: (host, [f"{shown(host['name'])} is cordoned"]),
    )


def uncordon(ctx: typer.Context, names: Names = None, selector: Selector = None, yes: Yes = False) -> None:
    """Place VMs on hosts again."""
    session = session_of(ctx)
    hosts = picked_hosts(session, names, selector, question="uncordon hosts", yes=yes)
    _each(session, hosts, session.client.uncordon, lambda _, host: (host, [f"{shown(host['name'])} takes VMs again"]))


PROVISIONED: Final = (
    field("HOST", "name", Fit.WHOLE),
    field("RESULT", "result", Fit.WHOLE),
    Column("WHY", lambda host: shown(host["error"]["message"] if host["error"] else None), Fit.WRAP),
)


def provision(
    ctx: typer.Context, names: Names = None, selector: Selector = None, yes: Yes = False, wait: Wait = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be changed on them.")] = False,
) -> None:  # fmt: skip
    """Put driver, and OVN by label, on hosts; may reboot them. VMs must be stopped."""
    session = session_of(ctx)
    if dry_run:
        planned = picked_hosts(session, names, selector, question=None)
        _each(session, planned, session.client.plan_provisioning, _planned)
        return
    hosts = picked_hosts(session, names, selector, question="put the driver on hosts", yes=yes)
    begun = {name: _begun(session, name) for name in hosts}
    if len(begun) == 1 and isinstance(refused := begun[hosts[0]], VgpuctlError):
        raise refused
    rows = [_ended(session, name, started, wait=wait) for name, started in begun.items()]
    show_list(rows, PROVISIONED, session.format, "no hosts")
    failed = [row for row in rows if row["error"]]
    if failed:
        raise Fatal(
            "host.not_provisioned",
            f"{len(failed)} of {len(rows)} hosts did not get their driver",
            hint=_mending(failed),
        )


def _mending(failed: Sequence[Json]) -> str:
    """What refused all of them alike says itself how that is mended."""
    hints = {row["error"].get("hint") for row in failed}
    if {row["result"] for row in failed} == {"refused"} and len(hints) == 1 and (hint := hints.pop()):
        return str(hint)
    return "'vgpuctl operation list --kind provision_host' has their operations; run it again when it is mended"


def _planned(name: str, plan: Json) -> Outcome:
    return {"name": name, **plan}, [f"{name}: {shown('; '.join(plan['changes']) or 'nothing would change')}"]


def _begun(session: CliSession, name: str) -> Json | VgpuctlError:
    try:
        return session.client.provision_host(name)
    except VgpuctlError as error:
        return error


def _ended(session: CliSession, name: str, begun: Json | VgpuctlError, *, wait: bool) -> Json:
    if isinstance(begun, VgpuctlError):
        return {"name": name, "result": "refused", "operation": None, "error": error_to_dict(begun)}
    row: Json = {"name": name, "result": "started", "operation": begun["operation"], "error": None}
    if not wait:
        return row
    try:
        follow(session, begun["operation"])
    except VgpuctlError as error:
        return {**row, "result": "failed", "error": error_to_dict(error)}
    return {**row, "result": "ready"}
