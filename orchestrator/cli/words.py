# SPDX-License-Identifier: Apache-2.0
"""Words of other tools: what they are called here, and what stands in for those that are not built."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("ram", "mem"), ("--memory",)),
    **dict.fromkeys(("cpu", "cpus", "cores", "vcpu"), ("--vcpus",)),
    **dict.fromkeys(("flavor", "flavour", "type", "instance-type", "gpu-type", "size", "offering"), ("--profile",)),
    **dict.fromkeys(("project", "namespace", "account"), ("--tenant",)),
    **dict.fromkeys(("key", "key-name", "keypair", "sshkey"), ("--ssh-key",)),
    **dict.fromkeys(("userdata", "cloud-init", "cloud-config"), ("--user-data",)),
    **dict.fromkeys(("tag", "tags", "labels"), ("--label",)),
    **dict.fromkeys(("format", "json", "yaml", "csv", "wide"), ("--output",)),
    **dict.fromkeys(("storage", "disk-size", "root-disk"), ("--disk",)),
    **dict.fromkeys(("net", "nics"), ("--network",)),
    **dict.fromkeys(("node", "hypervisor"), ("--host", "--hosts", "--to")),
    **dict.fromkeys(("host", "target", "destination", "target-host"), ("--hosts", "--to")),
    **dict.fromkeys(("all", "all-namespaces", "all-projects"), ("--all-tenants",)),
    **dict.fromkeys(("os", "template"), ("--image",)),
    **dict.fromkeys(("by", "duration", "ttl"), ("--lease", "--lifetime")),
    **dict.fromkeys(("actor", "user"), ("--who",)),
    **dict.fromkeys(("force", "assume-yes", "no-confirm"), ("--yes",)),
}
"""Without its dashes. The first that the command has, if any."""
ROOT_OPTIONS: Final[Mapping[str, str]] = {
    "context": "'vgpuctl context use NAME' makes it the current one; VGPUCTL_CONTEXT=NAME before one command",
}
"""Of other tools, for every command."""
OTHER_COMMANDS: Final[Mapping[tuple[str, str], str]] = {
    ("vm resize", "size"): "'vgpuctl vm resize-disk NAME --size 80GiB' makes its disk larger",
    ("image add", "from-snapshot"): "'vgpuctl image create NAME --from-snapshot VM/SNAPSHOT' makes an image of one",
    ("explain", "count"): "'vgpuctl capacity -p PROFILE' says how many VMs fit; --devices asks for so many in one VM",
    **{
        ("apply", option): "'vgpuctl plan -f FILE' shows what apply would do"
        for option in ("dry-run", "check", "diff", "server-dry-run")
    },
}
"""By command and option: what another command does."""
ALIKE: Final = 0.75
"""How alike a word has to be spelt to one of ours for being meant: rename is not remove, get is not set."""
COMMANDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("create", "launch", "run", "new", "boot", "define"), "create-vm"),
    **dict.fromkeys(("delete", "destroy", "terminate", "undefine"), "delete-vm"),
    **dict.fromkeys(("list", "ps", "vms", "servers", "instances"), "list-vms"),
    **dict.fromkeys(("show", "get", "info", "dominfo"), "show-vm"),
    **dict.fromkeys(("start", "poweron"), "start-vm"),
    **dict.fromkeys(("stop", "shutdown", "poweroff"), "stop-vm"),
    **dict.fromkeys(("reboot", "restart"), "restart-vm"),
    **dict.fromkeys(("reset", "gpu-reset"), "health reset"),
    **dict.fromkeys(("quarantine",), "health quarantine"),
    **dict.fromkeys(("domain", "domains", "instance"), "vm"),
    **dict.fromkeys(("net",), "network"),
    **dict.fromkeys(("vol",), "volume"),
    **dict.fromkeys(("node", "nodes", "hypervisor", "hypervisors"), "host"),
    **dict.fromkeys(("flavor", "flavors", "flavour", "offering", "offerings", "types"), "profile"),
    **dict.fromkeys(("project", "projects", "namespace", "namespaces"), "tenant"),
    **dict.fromkeys(("logs", "log"), "console"),
    **dict.fromkeys(("display", "screen", "vncviewer", "graphics"), "vnc"),
    **dict.fromkeys(("exec", "shell", "connect"), "ssh"),
    **dict.fromkeys(("kill",), "stop-vm"),
    **dict.fromkeys(("proxy", "port-forward", "forward", "tunnel"), "vm proxy"),
    **dict.fromkeys(("attach", "detach"), "volume"),
    **dict.fromkeys(("cordon",), "host cordon"),
    **dict.fromkeys(("uncordon",), "host uncordon"),
    **dict.fromkeys(("drain",), "host drain"),
    **dict.fromkeys(("evacuate",), "host evacuate"),
    **dict.fromkeys(("upgrade", "upgrades"), "driver upgrade"),
    **dict.fromkeys(("config", "configure"), "context"),
    **dict.fromkeys(("auth", "signin"), "login"),
    **dict.fromkeys(("user", "users", "member", "members", "group", "groups"), "tenant members"),
    **dict.fromkeys(("disk", "disks"), "volume"),
    **dict.fromkeys(("snapshot", "snapshots", "snap"), "vm snapshot"),
    **{f"snapshot-{verb}": f"vm snapshot {verb}" for verb in ("create", "list", "delete", "restore")},
    **dict.fromkeys(("snapshot-revert", "snapshot revert"), "vm snapshot restore"),
    **{f"server {verb}": f"{verb}-vm" for verb in ("create", "delete", "show")},
    **dict.fromkeys(("resize-disk", "disk-resize", "grow-disk"), "vm resize-disk"),
    **dict.fromkeys(("firewall", "security-groups", "secgroup"), "security-group"),
    **dict.fromkeys(("grow", "extend-disk"), "volume resize"),
    **dict.fromkeys(("resize", "scale"), "vm resize"),
    **dict.fromkeys(("task", "tasks", "jobs"), "operation"),
    **dict.fromkeys(("wait",), "operation wait"),
    **dict.fromkeys(("check",), "doctor"),
    **dict.fromkeys(("stats", "utilization"), "top"),
    **dict.fromkeys(("migrate", "live-migrate", "move"), "vm move"),
    **dict.fromkeys(("suspend", "hibernate"), "vm suspend"),
    **dict.fromkeys(("resume",), "vm resume"),
    **dict.fromkeys(("restore",), "backup restore"),
    **dict.fromkeys(("rebalance", "defragment", "defrag"), "gpu defragment"),
    **dict.fromkeys(("floating-ip", "floating-ips", "floating", "fip"), "network address"),
    **dict.fromkeys(("ui", "gui", "dashboard", "browser"), "web"),
}
IN_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("get", "info", "view", "inspect", "describe"), ("show",)),
    **dict.fromkeys(("edit", "update", "change", "modify", "label"), ("set",)),
    **dict.fromkeys(
        ("delete", "remove", "destroy", "del", "drop", "rm", "prune", "undefine"),
        ("delete", "remove", "revoke", "release"),
    ),
    **dict.fromkeys(("clear", "unquarantine"), ("return",)),
    **dict.fromkeys(("new", "create", "add"), ("create", "add", "run")),
    **dict.fromkeys(("register", "upload", "import"), ("add", "create", "run")),
    **dict.fromkeys(("list", "ls", "status"), ("list", "show", "status")),
    **dict.fromkeys(("reboot", "reset"), ("restart", "reboot")),
    **dict.fromkeys(("resize", "scale"), ("resize",)),
    **dict.fromkeys(("grow", "extend", "expand", "grow-disk", "extend-disk", "disk-resize"), ("resize-disk", "resize")),
    **dict.fromkeys(("snapshots", "snap"), ("snapshot",)),
    **dict.fromkeys(("rollback", "revert"), ("restore",)),
    **dict.fromkeys(("migrate", "live-migrate"), ("move",)),
    **dict.fromkeys(("disable", "maintenance", "lock"), ("cordon",)),
    **dict.fromkeys(("enable", "unlock"), ("uncordon",)),
}
"""In a group of commands (``quota get``): the first that the group has."""
_COPY: Final = (
    "'vgpuctl create-vm NEW -p PROFILE --from-snapshot VM/SNAPSHOT' makes a VM of what a snapshot has, 'vgpuctl volume "
    "create NEW --from-snapshot VOLUME/SNAPSHOT' a volume; 'vgpuctl export' prints VMs as a file"
)
_USED: Final = "'vgpuctl gpu map' shows what lies where, 'vgpuctl quota list' what tenants hold"
_SUSPEND: Final = "'vgpuctl vm suspend NAME' puts a VM's memory on disk, 'vgpuctl vm resume NAME' lets it go on"
NOT_BUILT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("clone", "copy", "rebuild"), _COPY),
    **dict.fromkeys(("usage", "cost", "costs", "billing", "price", "report"), _USED),
    **dict.fromkeys(("pause",), _SUSPEND),
    "delete -f": "'vgpuctl apply -f FILE --prune' deletes VMs of FILE's label that it has no more",
    **dict.fromkeys(("queue", "reserve", "reservation"), "'vgpuctl explain -p PROFILE' tells what would make room"),
}
"""With what is done instead. A command of that name wins."""


QUOTED_PROFILE: Final = 'a profile with a space in it is put in quotes: -p "GRID T4-2Q"'


NOUNS: Final = (
    *("host", "gpu", "volume", "network", "image", "tenant", "quota", "profile", "token", "operation", "vm"),
    *("pool", "backup", "webhook", "driver"),
)
_OF_VMS: Final = frozenset({"server", "servers", "instance", "instances", "machine", "machines", "domain", "domains"})
_OR: Final[Mapping[str, str]] = {"reboot": ", or host reboot", "restart": ", or host reboot"}
"""What a word without a noun may mean too."""


def _none(_: str) -> tuple[str, ...]:
    return ()


def instead_of(
    word: str,
    known: Collection[str],
    group: str = "",
    commands_of: Callable[[str], tuple[str, ...]] = _none,
    following: str = "",
) -> str | None:
    """The hint for a word that other tools have (``resize``, ``drain-host``); None: it is no word of theirs.

    ``known``: the commands here, all or those of ``group``; ``commands_of``: those of a noun; ``following``: what was
    typed after it (``get vms``)."""
    pair = f"{group} {word}" if group else f"{word} {following}"
    if pair in NOT_BUILT or pair in COMMANDS:
        word = pair
    elif not group and is_noun(following):
        word = f"{word}-{following}"
    verb, noun = (word, None) if word in NOT_BUILT or word in COMMANDS else _split(word)
    if noun is not None and not group:
        commands = commands_of(noun)
        meant = next((name for name in (verb, *IN_GROUPS.get(verb, ())) if name in commands), None)
        return instead_of(verb, commands, noun) if meant is None else f"did you mean {_spelt(noun, meant, known)}?"
    inside = [name for name in IN_GROUPS.get(word, ()) if group and name in known]
    if inside:
        return f"did you mean {inside[0]}?"
    if word in NOT_BUILT:
        return f"not built: {NOT_BUILT[word]}"
    meant = COMMANDS.get(word, word.removesuffix("s"))
    elsewhere = " " in meant or word == pair  # with its noun, so that it says where
    return f"did you mean {meant}{_OR.get(word, '')}?" if elsewhere or meant in known else None


def is_noun(word: str) -> bool:
    """Whether it says what a command is about, here or elsewhere (``vms``, ``nodes``)."""
    return _noun(word) is not None


def _noun(word: str) -> str | None:
    alone = word.removesuffix("s")
    noun = "vm" if word in _OF_VMS else alone if alone in NOUNS else COMMANDS.get(word)
    return noun if noun in NOUNS else None


def _split(word: str) -> tuple[str, str | None]:
    """``drain-nodes``, ``pool-list``: a verb and a noun of ours. A word without a noun: that word."""
    verb, _, last = word.rpartition("-")
    first, _, rest = word.partition("-")
    if verb and (noun := _noun(last)):
        return ("list" if last.endswith("s") and verb in {"get", "show", "describe"} else verb), noun
    return (rest, noun) if rest and (noun := _noun(first)) else (word, None)


def _spelt(noun: str, verb: str, known: Collection[str]) -> str:
    """As it is typed after ``vgpuctl``: ``host cordon``, ``restart-vm``."""
    short = (f"{verb}-vm", f"{verb}-vms", verb) if noun == "vm" else ()
    return next((name for name in short if name in known), f"{noun} {verb}")
