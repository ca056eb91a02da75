# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl doctor``"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from orchestrator.cli.ages import seconds_until, show_time
from orchestrator.cli.commands.operation import SHORT_ID
from orchestrator.cli.complete import hosts
from orchestrator.cli.output import printable
from orchestrator.cli.parameters import Sort
from orchestrator.cli.session import Format, format_of, session_of
from orchestrator.cli.table import Column, Fit, field, show_list
from orchestrator.client.autostart import server_info

if TYPE_CHECKING:
    from orchestrator.client.client import Client

WARN_S: Final = 30 * 86_400.0
DIFFERENCES_EXIT: Final = 3
"""As for a plan that found something to do."""


def _repair(finding: Mapping[str, Any]) -> str:
    """Eight digits of an operation are enough for every command that takes one; ``-o json`` has all."""
    if finding["operation"] is not None:
        return f"begun: {finding['operation'][:8]}"
    if finding["repair"] is None:
        return "none"
    return "by itself" if finding["automatic"] else "--repair"


def _warn_of_certificate(server: Mapping[str, Any]) -> None:
    """Beside what differs on hosts: a server that is reached over the network will not be for long."""
    ends_at, refused = server.get("certificate_ends_at"), server.get("certificate_refused")
    if refused:
        typer.echo(f"warning: the server does not serve the certificate in its file: {printable(refused)}", err=True)
    if ends_at is not None and seconds_until(ends_at) < WARN_S:
        typer.echo(f"warning: the server's certificate ends at {show_time(ends_at)}", err=True)


def _summary(findings: Sequence[Mapping[str, Any]]) -> str:
    """One line: how much of what, the commonest first, and on how many hosts and VMs."""
    codes = ", ".join(
        f"{number} {code}" for code, number in Counter(finding["code"] for finding in findings).most_common()
    )
    hosts_of, vms = {finding["host"] for finding in findings}, {finding["vm"] for finding in findings} - {None}
    return f"{len(findings)} findings about {len(vms)} VMs on {len(hosts_of)} hosts: {codes}"


def _warn_of_stuck(client: Client) -> bool:
    """What a person must decide about comes before what differs on hosts. Whether there is any."""
    stuck = client.operations(state="stuck", limit=_STUCK_SHOWN)
    for operation in stuck:
        what = printable(f"{operation['kind']} of {operation['subject_name']}")
        command = f"vgpuctl operation show {operation['id'][:SHORT_ID]}"
        typer.echo(f"stuck: {what}: '{command}' has its ways out", err=True)
    if client.connection.total is not None and client.connection.total > len(stuck):
        typer.echo(
            f"stuck: {client.connection.total} operations: 'vgpuctl operation list --state stuck' has all", err=True
        )
    return bool(stuck)


def _warn_of_networks(client: Client) -> bool:
    """What is not as it should be in OVN, of which no host is. Whether there is any."""
    troubles = client.network_driver()["troubles"]
    for trouble in troubles[:_STUCK_SHOWN]:
        print(printable(f"OVN: {trouble['subject']}: {trouble['message']} [{trouble['code']}]"), file=sys.stderr)
    if troubles:
        print("OVN: 'vgpuctl network driver check' has what to do about it", file=sys.stderr)
    return bool(troubles)


_STUCK_SHOWN: Final = 10
_SUMMED_FROM: Final = 10
COLUMNS: Final = (
    field("HOST", "host", Fit.WHOLE),
    field("SUBJECT", "subject", Fit.WRAP),
    field("CODE", "code", Fit.WHOLE, spare=True),
    field("OBSERVED", "observed", spare=True),
    field("WHOSE", "whose", spare=True),
    Column("REPAIR", _repair),
    field("WHY", "reason", Fit.WRAP),
)


def doctor(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option("--host", help="Only this host.", autocompletion=hosts)] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Begin all repairs, also those that are not done by themselves.")
    ] = False,
    sort: Sort = None,
) -> None:
    """Tell what differs from what is wanted; repair it.

    Every host is looked at first. Exit code 3: something differs, or an operation is stuck. Stuck operations, what is
    not as it should be in OVN, and what goes wrong in the server itself, are said on standard error.
    """
    client = session_of(ctx).client
    stuck = _warn_of_stuck(client)
    in_ovn = host is None and _warn_of_networks(client)
    for warning in server_info(client.connection).get("warnings", ()):
        print(f"warning: the server: {printable(warning)}", file=sys.stderr)
    findings = client.observe_findings(host)
    if repair and findings:
        client.repair_findings(host)
        findings = client.findings(host)
    _warn_of_certificate(server_info(client.connection))
    show_list(findings, COLUMNS, format_of(ctx), "nothing differs", sort)
    if len(findings) > _SUMMED_FROM and format_of(ctx) in {Format.TABLE, Format.WIDE}:
        print(_summary(findings))
    if findings or stuck or in_ovn:
        raise typer.Exit(DIFFERENCES_EXIT)
