# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl host …``"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer

from orchestrator.cli import enrolment
from orchestrator.cli.ages import show_time
from orchestrator.cli.commands.host_check import check
from orchestrator.cli.commands.host_import import import_hosts
from orchestrator.cli.commands.host_provision import provision
from orchestrator.cli.complete import hosts
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.group import new_group
from orchestrator.cli.host_cpus import PinnableCpus, checked_cpus, claimed_line, numa_lines, pinned_line
from orchestrator.cli.host_labels import label_lines
from orchestrator.cli.host_nics import RdmaNics, checked_nics, nic_lines
from orchestrator.cli.output import render_details, show, show_plain, shown, text_width
from orchestrator.cli.parameters import Label, OfModel, Selector, Sort, Unlabel, check_model
from orchestrator.cli.progress import follow
from orchestrator.cli.session import CliSession, Format, Output, session_of
from orchestrator.cli.table import Column, Fit, Listing, age, field
from orchestrator.cli.vm_outcome import Outcome, each
from orchestrator.cli.watch import View, Watch, list_view, show_view
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput
from orchestrator.core.host import HostState, check_address, check_gpus, check_user
from orchestrator.core.labels import parse_changes, parse_selector, selects, show_labels
from orchestrator.core.names import check_name
from orchestrator.core.units import MIB, show_size

app = new_group("Add GPU hosts, look at them, give them back.")


def _host_name(text: str) -> str:
    return check_name(text, what="host")


def _host_names(texts: list[str]) -> list[str]:
    return [_host_name(text) for text in texts]


Name = Annotated[str, typer.Argument(help="Name of the host.", autocompletion=hosts, callback=_host_name)]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Names of hosts.", autocompletion=hosts, callback=_host_names)
]
NewName = Annotated[str, typer.Argument(help="Name of the new host.", callback=_host_name)]
Address = Annotated[str, typer.Option("--address", help="IP address or DNS name.")]
Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of its ssh server.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done, or only start it.")]
VcpuOvercommit = Annotated[
    str | None,
    typer.Option("--vcpu-overcommit", metavar="NUMBER|site", help="vCPUs of VMs for each of the host's, 1 to 64."),
]
MemoryOvercommit = Annotated[
    str | None, typer.Option("--memory-overcommit", metavar="NUMBER|site", help="The same for memory.")]  # fmt: skip
AllowUnconfined = Annotated[bool | None, typer.Option(
    "--allow-unconfined/--refuse-unconfined", help="Put new VMs there without AppArmor and SELinux as well.",
)]  # fmt: skip

_NAMES: Final = {"apparmor": "by AppArmor", "selinux": "by SELinux"}
_STATES: Final = (*get_args(HostState), "cordoned", "other-agent")


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


@app.command("scan")
def scan(
    ctx: typer.Context, address: Annotated[str, typer.Argument(help="IP address or DNS name.")], port: Port = 22,
    output: Output = Format.TABLE,
) -> None:  # fmt: skip
    """Show the SSH host key that answers at an address."""
    key = session_of(ctx).client.scan_host(check_address(address), port)
    show(key, output, lambda: [f"{shown(key['type'])} {shown(key['fingerprint'])}"])


@app.command("add")
def add(
    ctx: typer.Context,
    name: NewName,
    address: Address,
    port: Port = 22,
    user: Annotated[str, typer.Option("--user", help="SSH user for Ansible; needs sudo when not root.")] = "root",
    provisioning_key: Annotated[
        Path | None, typer.Option("--provisioning-key", help="Private key for Ansible; your own ssh key when left out.")
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option("--host-key-fingerprint", help="SHA256:… of the host's key, known from elsewhere.")
    ] = None,
    gpus: Annotated[
        str, typer.Option("--gpus", help="Which GPUs we get: all, unused, or addresses with commas.")
    ] = "unused",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take a host that obeys another control plane.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Accept the host key that answers now.")] = False,
    wait: Wait = True,
    output: Output = Format.TABLE,
) -> None:
    """Enrol a host. Its key is pinned, the agent installed, its GPUs are taken."""
    session = session_of(ctx)
    wanted: dict[str, object] = {
        "name": name,
        "address": check_address(address),
        "port": port,
        "user": check_user(user),
        "gpus": check_gpus(gpus),
        "provisioning_key": enrolment.private_key(provisioning_key),
        "take_over": take_over,
    }
    wanted["fingerprint"] = fingerprint or enrolment.confirmed_fingerprint(session, address, port, yes=yes)
    _finish(session, session.client.add_host(wanted), wait=wait)


app.command("import")(import_hosts)
app.command("check")(check)


def _finish(session: CliSession, started: Json, *, wait: bool) -> None:
    data, lines = _ended(session, started, wait=wait)
    show(data, session.format, lambda: lines)


def _ended(session: CliSession, started: Json, *, wait: bool) -> Outcome:
    """The host as it is then."""
    if started["operation"] is not None:
        if not wait:
            return started, [f"{shown(started['name'])}: operation {shown(started['operation'])} started"]
        follow(session, started["operation"])
    host = session.client.host(started["name"])
    return host, details(host)


@app.command("list")
def list_hosts(
    ctx: typer.Context,
    state: Annotated[
        str | None, typer.Option("--state", help="Only those in this state, cordoned, or of other-agent.")
    ] = None,
    model: OfModel = None,
    selector: Selector = None,
    sort: Sort = None,
    watch: Watch = False,
    output: Output = Format.TABLE,
) -> None:
    """List hosts."""
    session = session_of(ctx)
    picks = _filter(state, model, selector)
    none = "no such hosts" if state or model or selector else "no hosts yet: vgpuctl host add NAME --address A"
    listing = Listing(columns=COLUMNS, none=none, output=output, sort=sort)

    def read_view() -> View:
        known = session.client.hosts()
        check_model(model, (gpu["model"] for host in known for gpu in host["gpus"]))
        found = [host for host in known if picks(host)]
        return list_view(found, listing, lambda host: shown(host["name"]))

    show_view(session, read_view, output, watch=watch)


@app.command("show")
def show_host(ctx: typer.Context, name: Name, output: Output = Format.TABLE) -> None:
    """Show one host."""
    host = session_of(ctx).client.host(name)
    show(host, output, lambda: details(host))


def _filter(state: str | None, model: str | None, selector: str | None) -> Callable[[Mapping[str, Any]], bool]:
    if state is not None and state not in _STATES:
        hint = f"one of {', '.join(_STATES)}"
        raise InvalidInput("cli.usage", f"{ascii(state)[:40]} is no state of a host", hint=hint)
    terms = () if selector is None else parse_selector(selector)

    def picks(host: Mapping[str, Any]) -> bool:
        also = {"cordoned": host["cordoned"], "other-agent": host["agent_differs"]}
        in_state = state in {None, host["state"]} or also.get(str(state), False)
        has_model = model is None or any(model.lower() in gpu["model"].lower() for gpu in host["gpus"])
        return in_state and has_model and selects(terms, tuple(host["labels"].items()))

    return picks


def _cordoned(host: Mapping[str, Any]) -> str:
    cordon = host["cordon"]
    if cordon is None:
        return f"for {shown(host['cordoned_for'])}" if host["cordoned_for"] else shown(host["cordoned"])
    return f"since {show_time(cordon['at'])} by {shown(cordon['by'])}" + (
        f": {shown(cordon['reason'])}" if cordon["reason"] else ""
    )


def details(host: Mapping[str, Any]) -> list[str]:
    """A host for people."""
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
        ("QEMU", shown(software.get("qemu"))),
        ("agent", _agent(host)),
        ("confined", _confined(host)),
        ("system", f"{shown(software.get('os'))}, kernel {shown(software.get('kernel'))}"),
        ("VMs", shown(host["vms"])),
    ]
    pairs += [("own CPUs", pinned_line(host)), *(("NUMA node", line) for line in numa_lines(host))]
    if (host["software"] or {}).get("uefi") is False:  # an older server does not say
        pairs.append(("UEFI for VMs", "no: install OVMF"))
    pairs += [("network card", line) for line in nic_lines(host)]
    pairs += [("bridge", _bridge_line(bridge)) for bridge in host["bridges"] or ()]
    pairs += [("fabric", line) for line in _fabric_lines(host["fabric"])]
    pairs += [("GPU", _gpu_line(gpu)) for gpu in host["gpus"]]
    pairs += [("problem", shown(problem)) for problem in host["problems"]]
    return render_details(pairs)


def _agent(host: Mapping[str, Any]) -> str:
    software = host["software"] or {}
    if software.get("agent_too_old"):
        more = ", too old: it is upgraded by itself"
    else:
        other = f" (not this server's: 'vgpuctl host upgrade-agent {shown(host['name'])}' puts its own there)"
        more = other if host["agent_differs"] else ""
    return f"{shown(software.get('agent'))}{more}"


def _confined(host: Mapping[str, Any]) -> str:
    found = (host["software"] or {}).get("confinement")
    if found == "none":
        return "no, and allowed" if host["allow_unconfined"] else "no: nothing new is put there"
    return _NAMES.get(str(found), "not told")


def _fabric_lines(fabric: Mapping[str, Any] | None) -> list[str]:
    """Nothing of a host without NVSwitches."""
    if fabric is None:
        return []
    sizes = Counter(len(one["modules"]) for one in fabric["partitions"])
    there = ", ".join(f"{count} of {size}" for size, count in sorted(sizes.items(), reverse=True)) or "none"
    version = shown(fabric["version"])
    first = f"manager {version}, partitions: {there} GPUs" if fabric["problem"] is None else shown(fabric["problem"])
    active = [one for one in fabric["partitions"] if one["active"]]
    return [first, *(f"partition {one['id']} is active{_of_modules(one)}" for one in active)]


def _of_modules(partition: Mapping[str, Any]) -> str:
    modules = ", ".join(str(one) for one in partition["modules"])
    return f" (modules {modules})" + ("" if partition["ours"] else ", not activated by us")


def _gpu_line(gpu: Mapping[str, Any]) -> str:
    return f"{shown(gpu['address'])}  {shown(gpu['model'])}" + ("" if gpu["managed"] else "  (not ours)")


def _bridge_line(bridge: Mapping[str, Any]) -> str:
    if bridge["kind"] == "openvswitch":
        return f"{shown(bridge['name'])}  Open vSwitch: no VM is put there"
    return f"{shown(bridge['name'])}" + (f"  {shown(bridge['vlans'])}" if bridge["vlans"] else "")


@app.command("set")
def set_host(
    ctx: typer.Context,
    name: Name,
    vcpu_overcommit: VcpuOvercommit = None,
    memory_overcommit: MemoryOvercommit = None,
    allow_unconfined: AllowUnconfined = None,
    pinnable_cpus: PinnableCpus = None,
    rdma_nics: RdmaNics = None,
    label: Label = None,
    unlabel: Unlabel = None,
    output: Output = Format.TABLE,
) -> None:
    """Set a host's overcommit, confinement, CPUs, NICs, labels."""
    labels = parse_changes(label or (), unlabel or ())
    wanted: dict[str, object] = {
        "vcpu_overcommit": enrolment.overcommit(vcpu_overcommit),
        "memory_overcommit": enrolment.overcommit(memory_overcommit),
        "allow_unconfined": allow_unconfined,
        "pinnable_cpus": checked_cpus(pinnable_cpus),
        "rdma_nics": checked_nics(rdma_nics),
        "labels": labels,
    }
    if all(value is None or value == {} for value in wanted.values()):
        raise InvalidInput("cli.nothing_to_set", "nothing is to be set", hint="run 'vgpuctl host set --help'")
    host = session_of(ctx).client.change_host(name, wanted)
    show(host, output, lambda: details(host))


@app.command("remove")
def remove(ctx: typer.Context, name: Name, yes: Yes = False, wait: Wait = True, output: Output = Format.TABLE) -> None:
    """Give a host back as it was; refused while VMs are there."""
    confirm("give back host", [name], yes=yes)
    session = session_of(ctx)
    started = session.client.remove_host(name)
    if started["operation"] is None:
        show(started, output, lambda: [f"the record of {name} is gone"])
        return
    if not wait:
        show(started, output, lambda: [f"{name}: operation {shown(started['operation'])} started"])
        return
    operation = follow(session, started["operation"])
    show(operation, output, lambda: [f"{name} is given back"], name=name)


@app.command("forget")
def forget(
    ctx: typer.Context,
    name: Name,
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="NAME", help="The host's name once more; asked for without it.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Give up a host that will never come back: its VMs are lost."""
    session = session_of(ctx)
    host = session.client.forget_host(name, confirm or enrolment.confirmed_name(name))
    lost = len(host["vms"])
    show(host, output, lambda: [f"{shown(host['name'])} is given up; {lost} VMs are lost and can be deleted"])


@app.command("upgrade-agent")
def upgrade_agent(ctx: typer.Context, names: Names, wait: Wait = True, output: Output = Format.TABLE) -> None:
    """Install this version's agent; VMs are left alone."""
    session = session_of(ctx)

    def end(_: str, started: Json) -> Outcome:
        return _ended(session, started, wait=wait)

    each(session, names, session.client.upgrade_agent, end, wait=wait, of="hosts")


app.command("provision")(provision)


@app.command("cordon")
def cordon(
    ctx: typer.Context,
    name: Name,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for whoever finds it cordoned.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Place no new VMs on a host."""
    host = session_of(ctx).client.cordon(name, reason)
    show(host, output, lambda: [f"{shown(host['name'])} is cordoned"])


@app.command("uncordon")
def uncordon(ctx: typer.Context, name: Name, output: Output = Format.TABLE) -> None:
    """Place VMs on a host again."""
    host = session_of(ctx).client.uncordon(name)
    show(host, output, lambda: [f"{shown(host['name'])} takes VMs again"])


@app.command("plan-drain")
def plan_drain(ctx: typer.Context, name: Name, output: Output = Format.TABLE) -> None:
    """Show where a host's VMs could go and why others stay. Moves nothing."""
    from orchestrator.cli.advice.plans import render_drain

    plan = session_of(ctx).client.drain_plan(name)
    show_plain(plan, output, lambda: render_drain(plan, name, text_width()))
