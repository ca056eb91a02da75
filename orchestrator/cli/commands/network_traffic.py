# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl network explain`` and ``flows``, and what ``network show`` has of traffic"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.commands.network_cards import Network
from orchestrator.cli.complete import vms
from orchestrator.cli.output import show, shown
from orchestrator.cli.parameters import Sort, Tenant, vm_name
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, Listing, field, show_rows, time
from orchestrator.client.connection import Json
from orchestrator.core.northbound.trace import Probe
from orchestrator.core.readings.flows import KEPT_S
from orchestrator.core.security_groups import MAX_PORT, SecurityRule
from orchestrator.core.units import parse_duration, show_size

Sender = Annotated[str, typer.Argument(metavar="FROM", help="VM that begins.", autocompletion=vms, callback=vm_name)]
Receiver = Annotated[
    str, typer.Argument(metavar="TO", help="VM or floating address.", autocompletion=vms, callback=vm_name)
]
Port = Annotated[int | None, typer.Argument(help="Port of the receiver.", min=1, max=MAX_PORT)]
Since = Annotated[str, typer.Option("--since", help="Of the last 30s, 5m, 1h; an hour at most.")]


def _packets_end(flow: Json, address: str, *, is_vm: bool) -> str:
    name = flow["vm"] if is_vm else flow["other"]
    return shown(flow[address]) if name is None else f"{shown(name)} ({shown(flow[address])})"


def _what(flow: Json) -> str:
    return shown(flow["protocol"] if flow["port"] is None else f"{flow['protocol']} {flow['port']}")


def _by(flow: Json) -> str:
    if flow["rule"] is None:
        return "no rule allows it"
    return shown(f"'{SecurityRule(**flow['rule'])}' of {flow['group']}")


FLOWS: Final = (
    time("AT", "at"),
    field("AT CARD OF", "vm", Fit.WHOLE),
    Column("FROM", lambda flow: _packets_end(flow, "source", is_vm=flow["direction"] == "out"), Fit.WHOLE),
    Column("TO", lambda flow: _packets_end(flow, "target", is_vm=flow["direction"] == "in"), Fit.WHOLE),
    Column("WHAT", _what, Fit.WHOLE),
    Column("VERDICT", lambda flow: "refused" if flow["refused"] else "allowed", Fit.WHOLE),
    Column("BY", _by),
    field("PACKETS", "packets"),
)


def flows(
    ctx: typer.Context, name: Network, since: Since = "1h", tenant: Tenant = "default", sort: Sort = None
) -> None:
    """Show connections on a network of kind ovn that its flow log has."""
    seconds = parse_duration(since, field="--since", at_most_s=int(KEPT_S))
    answer = session_of(ctx).client.network_flows(name, tenant, seconds)
    none = "nothing passed lately"
    if answer["flow_log"] == "off":
        none = f"{name} has no flow log; 'vgpuctl network set {name} --tenant {tenant} --flow-log all' begins one"
    listing = Listing(columns=FLOWS, none=none, output=format_of(ctx), sort=sort, said=_below(answer))
    show_rows(answer, answer["flows"], listing)


def _below(answer: Json) -> list[str]:
    refused, silent = answer["refused_packets"], answer["silent_hosts"]
    lines = [f"{refused} packets were refused"] if refused else []
    if answer["whole_since"] is not None:
        why = "more flows came than are kept" if answer["left_out"] else "not all hosts were heard then"
        since, count = show_time(answer["whole_since"]), answer["left_out"]
        lines.append(f"whole since {since}; {count or 'what was'} before is missing: {why}")
    return lines + ([f"{silent} hosts with its VMs are not heard: what they logged is missing"] if silent else [])


def totals(traffic: Json) -> list[tuple[str, str]]:
    """Of ``network show``."""
    if not traffic["vms"]:
        return []
    ways = (
        f"{shown(show_size(int(traffic[f'{way}_bytes'] or 0)))} {way} ({int(traffic[f'{way}_packets'] or 0)} packets, "
        f"{int(traffic[f'{way}_drops'] or 0)} dropped)"
        for way in ("received", "sent")
    )
    return [("traffic of VMs", "; ".join(ways))]


def explain(
    ctx: typer.Context,
    sender: Sender,
    receiver: Receiver,
    port: Port = None,
    protocol: Annotated[Probe, typer.Option("--protocol", help="tcp, udp or icmp; icmp has no port.")] = "tcp",
    ipv6: Annotated[bool, typer.Option("--ipv6", help="By IPv6, where both have IPv4 as well.")] = False,
    tenant: Tenant = "default",
) -> None:
    """Explain whether a VM reaches another or a floating address."""
    path = session_of(ctx).client.network_path(sender, receiver, tenant, protocol, port, ipv6=ipv6)
    show(path, format_of(ctx), lambda: _explained(sender, receiver, path))


def _explained(sender: str, receiver: str, path: Json) -> list[str]:
    verdict = "reaches" if path["arrives"] else "does not reach"
    own, theirs = path["network"], path["receiver_network"]
    where = f"on network {own}" if own == theirs else f"from network {own} on network {theirs}"
    reached = path["receiver_vm"] if receiver == path["receiver_vm"] else f"{path['receiver_vm']} by {receiver}"
    first = f"{sender} ({path['sender']}) {verdict} {reached} ({path['receiver']}) {where}"
    names = {"out": sender, "in": path["receiver_vm"]}
    rules = (_judged(each, names) for each in path["judgements"])
    return [shown(line) for line in (first, *path["obstacles"], *rules)]


def _judged(judgement: Json, names: dict[str, str]) -> str:
    way, rule = ("from" if judgement["direction"] == "out" else "to"), judgement["rule"]
    where = f"{way} {names[judgement['direction']]}:"
    if rule is None:
        return f"{where} refused: no rule of its security groups allows it"
    verdict = "refused" if rule["refuse"] else "allowed"
    return f"{where} {verdict} by '{SecurityRule(**rule)}' of security group {judgement['group']}"
