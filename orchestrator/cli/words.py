# SPDX-License-Identifier: Apache-2.0
"""Words of other tools: what they are called here, and what stands in for those that are not built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OPTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ram", "mem"), "--memory"),
    **dict.fromkeys(("cpu", "cpus", "cores", "vcpu"), "--vcpus"),
    **dict.fromkeys(("flavor", "flavour", "type", "instance-type", "gpu-type", "size", "offering"), "--profile"),
    **dict.fromkeys(("project", "namespace", "account"), "--tenant"),
    **dict.fromkeys(("key", "key-name", "keypair", "sshkey"), "--ssh-key"),
    **dict.fromkeys(("userdata", "cloud-init", "cloud-config"), "--user-data"),
    **dict.fromkeys(("tag", "tags", "labels"), "--label"),
    **dict.fromkeys(("format", "json", "yaml", "csv", "wide"), "--output"),
    **dict.fromkeys(("storage", "disk-size", "root-disk"), "--disk"),
    **dict.fromkeys(("net", "nics"), "--network"),
    **dict.fromkeys(("node", "hypervisor"), "--host"),
    **dict.fromkeys(("all", "all-namespaces", "all-projects"), "--all-tenants"),
    **dict.fromkeys(("os", "template"), "--image"),
}
"""Without its dashes. Only said where the command has that option."""
COMMANDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("create", "launch", "run", "new", "boot"), "create-vm"),
    **dict.fromkeys(("delete", "destroy", "terminate"), "delete-vm"),
    **dict.fromkeys(("list", "ps", "vms", "servers", "instances"), "list-vms"),
    **dict.fromkeys(("show", "get", "info"), "show-vm"),
    **dict.fromkeys(("start", "poweron"), "start-vm"),
    **dict.fromkeys(("stop", "shutdown", "poweroff"), "stop-vm"),
    **dict.fromkeys(("reboot", "restart"), "restart-vm"),
    **dict.fromkeys(("node", "nodes", "hypervisor", "hypervisors"), "host"),
    **dict.fromkeys(("flavor", "flavors", "flavour", "offering", "offerings", "types"), "profile"),
    **dict.fromkeys(("project", "projects", "namespace", "namespaces"), "tenant"),
    **dict.fromkeys(("logs", "log"), "console"),
    **dict.fromkeys(("disk", "disks"), "volume"),
    **dict.fromkeys(("task", "tasks", "jobs", "wait"), "operation"),
    **dict.fromkeys(("health", "check"), "doctor"),
}
_SIZE: Final = "keep data in a volume and create the VM again: 'vgpuctl create-vm --help'"
_ELSEWHERE: Final = "'vgpuctl host cordon HOST' keeps new VMs away; those there are created again elsewhere"
_COPY: Final = "'vgpuctl export' prints VMs as a file; data that is to stay is kept in volumes: 'vgpuctl volume --help'"
_USED: Final = "'vgpuctl gpu map' shows what lies where, 'vgpuctl quota list' what tenants hold"
_RESTART: Final = "'vgpuctl stop-vm NAME' keeps its place, 'vgpuctl start-vm NAME' goes on from its disk"
NOT_BUILT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("resize", "scale", "edit", "grow", "extend-disk"), _SIZE),
    **dict.fromkeys(("drain", "evacuate", "migrate", "live-migrate", "move", "rebalance"), _ELSEWHERE),
    **dict.fromkeys(("snapshot", "snapshots", "clone", "copy", "rebuild", "backup"), _COPY),
    **dict.fromkeys(("top", "stats", "usage", "metrics", "utilization"), _USED),
    **dict.fromkeys(("cost", "costs", "billing", "price", "report"), _USED),
    **dict.fromkeys(("suspend", "pause", "resume", "hibernate"), _RESTART),
    **dict.fromkeys(("ui", "dashboard", "web"), "'vgpuctl list-vms --watch' shows every change"),
    **dict.fromkeys(("queue", "reserve", "reservation"), "'vgpuctl explain -p PROFILE' tells what would make room"),
    **dict.fromkeys(
        ("security-group", "firewall", "floating-ip"),
        "'vgpuctl ssh NAME' reaches a VM",
    ),
}
"""With what is done instead. A command of that name wins."""


def instead_of(word: str, known: tuple[str, ...]) -> str | None:
    """The hint for a word that other tools have; ``known``: the commands here. None: it is no word of theirs."""
    if word in NOT_BUILT:
        return f"not built: {NOT_BUILT[word]}"
    meant = COMMANDS.get(word)
    return f"did you mean {meant}?" if meant in known else None
