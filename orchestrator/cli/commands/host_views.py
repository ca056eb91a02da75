# SPDX-License-Identifier: Apache-2.0
"""Hosts shown: one, several, and those that a command names or picks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final, get_args

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.complete import hosts
from orchestrator.cli.host_options import claimed_line, label_lines, nic_lines, numa_lines, pinned_line
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import OfModel, Selector, Sort
from orchestrator.cli.picking import names_or_patterns, picked
from orchestrator.cli.progress import follow
from orchestrator.cli.session import CliSession, format_of, session_of
from orchestrator.cli.table import Column, Fit, Listing, age, field
from orchestrator.cli.watch import View, Watch, list_view, show_view
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.model import models_meant
from orchestrator.core.hosts.features import FEATURES
from orchestrator.core.hosts.host import HostCondition
from orchestrator.core.labels import show_labels
from orchestrator.core.names import check_name
from orchestrator.core.units import MIB, show_size


def host_name(text: str) -> str:
    """:raises InvalidInput: ``host.name_invalid``"""
    return check_name(text, what="host")


def _host_names(texts: list[str] | None) -> list[str]:
    return names_or_patterns(texts, host_name)


Name = Annotated[str, typer.Argument(help="Name of the host.", autocompletion=hosts, callback=host_name)]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME...",
        help="Names of hosts, or patterns like 'gpu-*'.",
        autocompletion=hosts,
        callback=_host_names,
        show_default=False,
    ),
]

_NAMES: Final = {"apparmor": "by AppArmor", "selinux": "by SELinux"}
_OTHER_AGENT: Final = "other-agent"
"""What the API does not filter by: it takes reading what was observed of each host."""
_STATES: Final = (*get_args(HostCondition), _OTHER_AGENT)


def _claimed(host: Mapping[str, Any], what: str) -> str:
    return "-" if host[f"most_{what}"] is None else f"{host[f'claimed_{what}']}/{host[f'most_{what}']}"


def _state(host: Mapping[str, Any]) -> str:
    more = [*(["cordoned"] if host["cordoned"] else []), *(["other agent"] if host["agent_differs"] else [])]
    return shown(host["state"]) + (f" ({', '.join(more)})" if more else "")


COLUMNS: Final = (
    field("NAME", "name", Fit.WHOLE),
    Column("STATE", _state, Fit.WHOLE),
    field("ADDRESS", "address", Fit.WHOLE, spare=True),
    Column("GPUS", lambda host: str(len(host["gpus"]))),
    Column("MODELS", lambda host: shown(sorted({gpu["model"] for gpu in host["gpus"]}))),
    Column("VMS", lambda host: str(len(host["vms"]))),
    age("last_seen_at", "SEEN"),
    Column("LABELS", lambda host: shown(show_labels(host["labels"])), wide=True),
    Column("VCPUS", lambda host: _claimed(host, "vcpus"), wide=True),
    Column("AGENT", lambda host: shown((host["software"] or {}).get("agent")), wide=True),
    Column("DRIVER", lambda host: shown((host["software"] or {}).get("nvidia_driver")), spare=True),
)


OBSERVED_S: Final = 30.0
"""When a host was seen last is no event: each is seen again and again."""


def list_hosts(
    ctx: typer.Context,
    state: Annotated[
        str | None, typer.Option("--state", help="Only those in this state, cordoned, or of other-agent.")
    ] = None,
    model: OfModel = None,
    selector: Selector = None,
    sort: Sort = None,
    watch: Watch = False,
) -> None:
    """List hosts."""
    session = session_of(ctx)
    if state is not None and state not in _STATES:
        hint = f"one of {', '.join(_STATES)}"
        raise InvalidInput("cli.usage", f"{ascii(state)[:40]} is no state of a host", hint=hint)
    other_agent = state == _OTHER_AGENT
    none = "no such hosts" if state or model or selector else "no hosts yet: vgpuctl host add NAME --address A"
    listing = Listing(columns=COLUMNS, none=none, output=session.format, sort=sort)

    def read_view() -> View:
        hosts = session.client.hosts(selector, None if other_agent else state)
        all_hosts = hosts if model is None or (selector or state) is None else session.client.hosts()
        meant = models_meant(model, (gpu["model"] for host in all_hosts for gpu in host["gpus"]))
        of_model = [host for host in hosts if model is None or _has(host, meant)]
        picked = [host for host in of_model if not other_agent or host["agent_differs"]]
        return list_view(picked, listing, lambda host: shown(host["name"]), good_s=OBSERVED_S)

    show_view(session, read_view, watch=watch, nouns=("host", "vm", "operation"))


def show_host(ctx: typer.Context, name: Name) -> None:
    """Show one host."""
    host = session_of(ctx).client.host(name)
    show(host, format_of(ctx), lambda: details(host))


def _has(host: Mapping[str, Any], models: Collection[str]) -> bool:
    return any(gpu["model"] in models for gpu in host["gpus"])


def _cordoned(host: Mapping[str, Any]) -> str:
    cordon = host["cordon"]
    if cordon is None:
        return f"for {shown(host['cordoned_for'])}" if host["cordoned_for"] else shown(host["cordoned"])
    return f"since {show_time(cordon['at'])} by {shown(cordon['by'])}" + (
        f": {shown(cordon['reason'])}" if cordon["reason"] else ""
    )


def details(host: Mapping[str, Any]) -> list[str]:
    software = host["software"] or {}
    pairs = [
        ("name", shown(host["name"])),
        ("state", shown(host["state"])),
        ("because", shown(host["state_reason"])),
        ("cordoned", _cordoned(host)),
        ("address", f"{shown(host['user'])}@{shown(host['address'])} port {host['port']}"),
        ("last seen", show_time(host["last_seen_at"])),
        *label_lines(host),
        ("vCPUs", claimed_line(host, "vcpus", str)),
        ("memory", claimed_line(host, "memory_mib", lambda size: show_size(size * MIB))),
        (
            "free disk",
            "-" if host["storage_free_bytes"] is None else show_size(host["storage_free_bytes"] // MIB * MIB),
        ),
        ("driver", shown(software.get("nvidia_driver"))),
        ("libvirt", shown(software.get("libvirt"))),
        ("QEMU", _qemu(host)),
        ("agent", _agent(host)),
        ("confined", _confined(host)),
        ("system", f"{shown(software.get('os'))}, kernel {shown(software.get('kernel'))}"),
        ("VMs", shown(host["vms"])),
    ]
    pairs += [("own CPUs", pinned_line(host)), *(("NUMA node", line) for line in numa_lines(host))]
    missing = [text for feature, text in FEATURES.items() if software.get(feature) is False]
    pairs += [(text.title, f"no: install {text.package}") for text in missing]
    pairs += [("network card", line) for line in nic_lines(host)]
    pairs += [("bridge", _bridge_line(bridge)) for bridge in host["bridges"] or ()]
    pairs += [("fabric", line) for line in _fabric_lines(host["fabric"])]
    pairs += [("NVLink domain", shown(host["fabric"]["domain_id"]))] if host["fabric"] else []
    pairs += [("GPU", _gpu_line(gpu)) for gpu in host["gpus"]]
    pairs += [("problem", shown(problem)) for problem in host["problems"]]
    return render_details(pairs)


def _qemu(host: Mapping[str, Any]) -> str:
    older = len(host.get("older_qemu") or ())
    more = f" ({older} VMs run by one that it replaced, until they move or restart)" if older else ""
    return f"{shown((host['software'] or {}).get('qemu'))}{more}"


def _agent(host: Mapping[str, Any]) -> str:
    software = host["software"] or {}
    if software.get("agent_too_old"):
        more = ", too old: it is upgraded by itself"
    else:
        other = f" (not this server's: 'vgpuctl host upgrade-agent {shown(host['name'])}' puts its own there)"
        more = other if host["agent_differs"] else ""
    return f"{shown(software.get('agent'))}{more}"


def _confined(host: Mapping[str, Any]) -> str:
    confinement = (host["software"] or {}).get("confinement")
    if confinement == "none":
        return "no, and allowed" if host["allow_unconfined"] else "no: nothing new is put there"
    return _NAMES.get(str(confinement), "not told")


def _fabric_lines(fabric: Mapping[str, Any] | None) -> list[str]:
    """Nothing of a host without NVSwitches."""
    if fabric is None:
        return []
    sizes = Counter(len(partition["modules"]) for partition in fabric["partitions"])
    free_by_size = ", ".join(f"{count} of {size}" for size, count in sorted(sizes.items(), reverse=True)) or "none"
    version = shown(fabric["version"])
    first = (
        f"manager {version}, partitions: {free_by_size} GPUs" if fabric["problem"] is None else shown(fabric["problem"])
    )
    active = [partition for partition in fabric["partitions"] if partition["active"]]
    return [first, *(f"partition {partition['id']} is active{_of_modules(partition)}" for partition in active)]


def _of_modules(partition: Mapping[str, Any]) -> str:
    modules = ", ".join(str(module) for module in partition["modules"])
    return f" (modules {modules})" + ("" if partition["ours"] else ", not activated by us")


def _gpu_line(gpu: Mapping[str, Any]) -> str:
    return f"{shown(gpu['address'])}  {shown(gpu['model'])}" + ("" if gpu["managed"] else "  (not ours)")


def _bridge_line(bridge: Mapping[str, Any]) -> str:
    if bridge["kind"] == "openvswitch":
        ovn = f", OVN calls the host {shown(bridge['chassis'][0])}" if bridge["chassis"] else ""
        problem = f": {shown(bridge['problem'])}" if bridge["problem"] else ""
        silent = f", not reached: {shown(bridge['silent_tunnels'])}" if bridge["silent_tunnels"] else ""
        slow = f", slow: {shown(bridge['slow_tunnels'])}" if bridge["slow_tunnels"] else ""
        waiting = f", {len(bridge['waiting_ports'])} cards not set up" if bridge["waiting_ports"] else ""
        return f"{shown(bridge['name'])}  of Open vSwitch{ovn}{problem}{silent}{slow}{waiting}"
    return f"{shown(bridge['name'])}" + (f"  {shown(bridge['vlans'])}" if bridge["vlans"] else "")


def ended(session: CliSession, started: Json, *, wait: bool) -> tuple[Json, list[str]]:
    """The host as it is then."""
    if started["operation"] is not None:
        if not wait:
            return started, [f"{shown(started['name'])}: operation {shown(started['operation'])} started"]
        follow(session, started["operation"])
    host = session.client.host(started["name"])
    return host, details(host)


def picked_hosts(
    session: CliSession, names: Sequence[str] | None, selector: str | None, *, question: str | None, yes: bool = False
) -> list[str]:
    """As :func:`picked`, of hosts."""
    return picked(names, selector, session.client.hosts, question=question, yes=yes)
