# SPDX-License-Identifier: Apache-2.0
"""The command tree. A command's module is imported when it is called: help must come in less time than loading all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from orchestrator.cli.complete import complete_parameters
from orchestrator.cli.examples import add_examples
from orchestrator.cli.session import CliSession, Format, output_option
from orchestrator.core.errors import InvalidInput
from orchestrator.core.names import closest

Function = TypeVar("Function", bound=Callable[..., Any])
COMPLETE_VARIABLE: Final = "_VGPUCTL_COMPLETE"
"""The shell's completion script sets it when it asks for the words that fit."""
_QUOTED: Final = re.compile("'vgpuctl ([^']+)'")
_WHOLE: Final = 1_000
"""Letters of a summary: more than any has."""
OUTPUTS: Final[Mapping[str, Format | None]] = {
    **dict.fromkeys(("console", "vnc", "ssh", "vm console", "vm vnc", "vm ssh", "vm proxy"), None),
    **dict.fromkeys(("serve", "server backup", "server restore", "server rotate-key", "server invite"), None),
    **dict.fromkeys(("server join", "metrics rules", "metrics boards", "metrics runbook", "audit export"), None),
    **dict.fromkeys(("webhook delete", "webhook test", "web", "inventory", "completion"), None),
    "export": Format.YAML,
    "schema": Format.JSON,
}
"""Commands without ``-o``, and those that print no table without it. By their words."""
HELP_OPTIONS: Final = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class CommandEntry:
    """One word after ``vgpuctl``."""

    module: str
    attribute: str
    summary: str


ENTRIES: Final = {
    "create-vm": CommandEntry("vm", "create", "Create a VM with a vGPU."),
    "delete-vm": CommandEntry("vm_power", "delete", "Delete VMs and give back everything they had."),
    "show-vm": CommandEntry("vm_views", "show_vm", "Show one VM."),
    "list-vms": CommandEntry("vm_views", "list_vms", "List VMs."),
    "start-vm": CommandEntry("vm_power", "start_vm", "Start stopped VMs; their vGPUs are made again."),
    "stop-vm": CommandEntry("vm_power", "stop_vm", "Stop VMs; their places on GPUs stay reserved."),
    "restart-vm": CommandEntry("vm_power", "restart_vm", "Shut VMs down and start them again, where they are."),
    "rename-vm": CommandEntry("vm_power", "rename_vm", "Give a stopped VM another name."),
    "adopt-vm": CommandEntry("vm", "adopt", "Make a VM of a domain that somebody else made."),
    "extend-vm": CommandEntry("vm", "extend_vm", "Make a VM's lease longer."),
    "events": CommandEntry("events", "events", "What happened to a VM, or in the whole fleet."),
    "plan": CommandEntry("apply", "plan", "Show what apply would do."),
    "diff": CommandEntry("apply", "diff", "Show every value that is not as a file says."),
    "apply": CommandEntry("apply", "apply", "Make everything as a file says."),
    "export": CommandEntry("apply", "export", "Print what exists as a file for apply."),
    "schema": CommandEntry("apply", "schema", "Print the JSON schema of the file, for editors."),
    "console": CommandEntry("guest", "console", "Open the serial console. Ctrl-] leaves it."),
    "vnc": CommandEntry("guest", "vnc", "Open the screen for a VNC viewer, at a local port."),
    "ssh": CommandEntry("guest", "ssh", "Log in to a VM through its host."),
    "vm": CommandEntry("vm", "app", "Create, adopt, show, start, stop and delete VMs."),
    "host": CommandEntry("host", "app", "Add GPU hosts, look at them, give them back."),
    "gpu": CommandEntry("gpu", "app", "Show GPUs, what they offer and who uses them."),
    "health": CommandEntry("health", "app", "GPUs that fall ill: states, rules, your word."),
    "power": CommandEntry("power", "app", "What GPUs may take, and who lends to whom."),
    "mig": CommandEntry("mig", "app", "GPU instances of a host's GPUs."),
    "profile": CommandEntry("profile", "app", "What --profile takes: offerings, vGPU types, MIG profiles."),
    "image": CommandEntry("image", "app", "Base images that VMs' disks are made on."),
    "maintenance": CommandEntry("maintenance", "app", "What is done to hosts, when, and how far it is."),
    "driver": CommandEntry("driver", "app", "Drivers: their files, what is locked, what is there."),
    "network": CommandEntry("network", "app", "Networks that VMs are put on."),
    "security-group": CommandEntry("security_group", "app", "Who may reach VMs, and whom they may reach."),
    "volume": CommandEntry("volume", "app", "Data volumes: disks that stay when the VM goes that has them."),
    "pool": CommandEntry("pool", "app", "Directories that several hosts mount, for disks."),
    "backup": CommandEntry("backup", "app", "Backups of disks and volumes, which outlive VMs and hosts."),
    "tenant": CommandEntry("tenant", "app", "Tenants and who belongs to them."),
    "quota": CommandEntry("quota", "app", "What tenants may hold, and what they do."),
    "policy": CommandEntry("policy", "app", "Leases, priorities and maintenance of a tenant's VMs."),
    "whoami": CommandEntry("whoami", "whoami", "Who you are to the server, and what you may do."),
    "login": CommandEntry("login", "login", "Log in at an identity provider."),
    "token": CommandEntry("token", "app", "Tokens that act in a tenant for programs and people."),
    "webhook": CommandEntry("webhook", "app", "Addresses that are told what happens."),
    "audit": CommandEntry("audit", "app", "Who did or wanted what, refusals too."),
    "operation": CommandEntry("operation", "app", "Watch operations; ways out when one is stuck."),
    "status": CommandEntry("status", "status", "The whole site on one screen."),
    "top": CommandEntry("top", "app", "What hosts, GPUs and VMs do now."),
    "metrics": CommandEntry("metrics", "app", "Files for Prometheus and Grafana: rules, alerts, boards."),
    "doctor": CommandEntry("doctor", "doctor", "Tell what differs from what is wanted; repair it."),
    "capacity": CommandEntry("why", "capacity", "How many more VMs fit now, and with moves."),
    "explain": CommandEntry("why", "explain", "Where a VM would go and why, or why not."),
    "simulate": CommandEntry("simulate", "app", "Try a workload on a fleet that exists in memory."),
    "context": CommandEntry("context", "app", "Names for the servers you use."),
    "web": CommandEntry("web", "web", "Print the address of the pages for browsers; it logs you in once."),
    "serve": CommandEntry("server", "serve", "Run the server here, in the foreground, until Ctrl-C."),
    "inventory": CommandEntry("inventory", "inventory", "Print hosts and VMs as an inventory for Ansible."),
    "server": CommandEntry("server", "app", "The local server that commands start when they need it."),
    "completion": CommandEntry("completion", "completion", "Print the completion script for a shell."),
    "version": CommandEntry("version", "version", "Print which build this is, and which the server is that runs."),
}

SECTIONS: Final = {
    "VMs": (
        "create-vm", "list-vms", "show-vm", "start-vm", "stop-vm", "restart-vm", "delete-vm", "rename-vm", "extend-vm",
        "adopt-vm", "events", "console", "vnc", "ssh", "vm",
    ),
    "What VMs are made of": (
        "profile", "image", "network", "security-group", "volume", "pool", "backup", "capacity",
        "explain",
    ),
    "As files": ("plan", "diff", "apply", "export", "schema"),
    "Hosts and GPUs": ("host", "gpu", "health", "power", "mig", "driver", "maintenance", "simulate", "inventory"),
    "Tenants": ("tenant", "quota", "policy", "token", "audit", "whoami", "login"),
    "Day by day": ("status", "top", "doctor", "operation", "metrics", "web", "webhook"),
    "Servers": ("context", "serve", "server", "version", "completion"),
}  # fmt: skip
"""How ``vgpuctl --help`` lists them."""
ALIASES: Final = {"ls": "list-vms", "rm": "delete-vm", "describe": "show-vm"}
"""What fingers type that know other tools."""
OF_GROUPS: Final = {"ls": ("list",), "rm": ("delete", "remove", "revoke"), "describe": ("show",)}
"""The same in groups (``host ls``); the first that the group has."""


def _check_once(command: Any, ctx: Any, args: list[str]) -> None:
    """The parser takes the last of several values, and the others would be lost in silence.

    :raises InvalidInput: ``cli.usage``: an option is given twice that takes one value
    """
    if ctx.resilient_parsing:
        return
    try:
        _, _, given = command.make_parser(ctx).parse_args(args=list(args))
    except typer.TyperException as error:
        if getattr(error, "ctx", None) is None:
            vars(error)["ctx"] = ctx  # whose help the hint names
        raise
    for option in {
        parameter.name: parameter
        for parameter in given
        if parameter.param_type_name == "option" and not parameter.multiple
    }.values():
        if sum(parameter is option for parameter in given) > 1:
            name = max(option.opts, key=len)
            opposite = next((other for other in option.secondary_opts if other in args), None)
            if opposite is not None and name in args:
                raise InvalidInput("cli.usage", f"{name} and {opposite} exclude each other", hint="give one of them")
            raise InvalidInput(
                "cli.usage", f"{name} is given more than once", hint=f"it takes one value: give {name} once"
            )


class Command(TyperCommand):
    """Refuses an option that is given twice and takes one value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _check_once(self, ctx, args)
        session = ctx.find_root().obj
        if isinstance(session, CliSession):
            session.command = ctx.command_path.partition(" ")[2]
        return super().parse_args(ctx, args)


class Commands(typer.Typer):
    """All of its commands are :class:`Command`."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Function], Function]:
        return super().command(name, cls=Command, **settings)


class Group(TyperGroup):
    """Commands of a noun. Takes the words of other tools, and says what is near to one that is none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _check_once(self, ctx, args)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Summaries go on in the next line where one has no room; none is cut."""
        with formatter.section("Commands"):
            shown = {name: command for name, command in self.commands.items() if not command.hidden}
            formatter.write_dl([(name, command.get_short_help_str(_WHOLE)) for name, command in shown.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        if word not in self.commands:
            meant = next((name for name in OF_GROUPS.get(word, ()) if name in self.commands), None)
            if meant is not None:
                return super().resolve_command(ctx, [meant, *args[1:]])
            if not ctx.resilient_parsing and not word.startswith("-"):
                raise unknown_command(word, self.commands, ctx.command_path)
        return super().resolve_command(ctx, args)


def unknown_command(word: str, known: Iterable[str], path: str, following: str = "") -> InvalidInput:
    """With what is near to it. ``following``: what was typed after it."""
    from orchestrator.cli.words import ALIKE, instead_of

    names = tuple(known)
    near = closest(word, names, ALIKE)
    spelt = f"did you mean {', '.join(near)}?" if near else f"run '{path} --help'"
    hint = instead_of(word, names, " ".join(path.split()[1:]), _commands_of, following) or spelt
    typed = f"{word} {following}" if word in ALIASES else word
    return InvalidInput("cli.usage", f"there is no command {ascii(typed)[:60]}", hint=hint)


def _commands_of(noun: str) -> tuple[str, ...]:
    return tuple(getattr(load(noun, ENTRIES[noun]), "commands", ()))


class Root(TyperGroup):
    """Knows all commands by name and summary, and each one's code only when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(ENTRIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        entry = ENTRIES.get(cmd_name)
        return None if entry is None else load(cmd_name, entry)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        if word == "help" and not ctx.resilient_parsing:
            if args[1:]:
                return self.resolve_command(ctx, [*args[1:], "--help"])
            return None, TyperCommand("help", callback=lambda: None), []  # without a name _root prints the help
        about_noun = word in ALIASES and not ctx.resilient_parsing and _names_a_noun(word, args[1:])
        if not about_noun and (word in ENTRIES or word in ALIASES or ctx.resilient_parsing or word.startswith("-")):
            return super().resolve_command(ctx, args)
        raise unknown_command(word, ENTRIES, ctx.command_path, "".join(args[1:2]))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, ENTRIES[name].summary) for name in names])


def load(name: str, entry: CommandEntry) -> Any:
    """The command or group behind a word."""
    target = getattr(import_module(f"orchestrator.cli.commands.{entry.module}"), entry.attribute)
    if isinstance(target, typer.Typer):
        command = get_command(target)
    else:
        single = Commands(rich_markup_mode=None, add_completion=False)
        single.command(name, context_settings=HELP_OPTIONS)(target)
        command = get_command(single)
    command.name = name
    _add_output(name, command)
    add_examples(name, command)
    complete_parameters(command)
    return command


def _add_output(words: str, command: Any) -> None:
    """``-o`` to a command, and to those of a group; to the group itself where it has options of its own."""
    chosen = OUTPUTS.get(words, Format.TABLE)
    if chosen is not None and (command.params or not isinstance(command, Group)):
        command.params.append(output_option(chosen))
    for name, child in getattr(command, "commands", {}).items():
        _add_output(f"{words} {name}", child)


def _names_a_noun(alias: str, given: list[str]) -> bool:
    """``describe vm train``, ``ls hosts``: the word after it is no VM's name."""
    from orchestrator.cli.words import is_noun

    named = [text for text in given[:2] if not text.startswith("-")]
    return len(named) > (alias != "ls") and is_noun(named[0])


def with_tenant(hint: str | None, tenant: str | None) -> str | None:
    """The hint with ``--tenant`` in each command that takes it and has none; None: nobody named a tenant."""

    def whole(match: re.Match[str]) -> str:
        words = match[1].split()
        entry = ENTRIES.get(words[0])
        command = None if entry is None else load(words[0], entry)
        for word in words[1:]:
            command = getattr(command, "commands", {}).get(word, command)
        takes = any("--tenant" in parameter.opts for parameter in getattr(command, "params", ()))
        more = f" --tenant {tenant}" if takes and {"--tenant", "--shared"}.isdisjoint(words) else ""
        return f"'vgpuctl {match[1]}{more}'"

    return hint if hint is None or tenant is None else _QUOTED.sub(whole, hint)


def _root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print which build this is.")] = False,
) -> None:
    """VMs with NVIDIA vGPUs, MIG partitions and whole GPUs on KVM hosts.

    'vgpuctl help COMMAND' has the options and examples of one.
    """
    if version:
        from orchestrator.client.version import VERSION

        print(f"vgpuctl {VERSION}")
    elif ctx.invoked_subcommand is None:
        print(ctx.get_help())


def build() -> Any:
    """The root command. Help is plain text: rich takes longer to load than the whole answer may take."""
    app = typer.Typer(cls=Root, rich_markup_mode=None, add_completion=False, context_settings=HELP_OPTIONS)
    app.callback(invoke_without_command=True)(_root)
    return get_command(app)


def new_group(summary: str) -> typer.Typer:
    """A group that prints its help when called without a command."""
    group = Commands(
        cls=Group, rich_markup_mode=None, help=summary, add_completion=False, context_settings=HELP_OPTIONS
    )

    def print_help(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            print(ctx.get_help())

    group.callback(invoke_without_command=True, help=summary)(print_help)
    return group
