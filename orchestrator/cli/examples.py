# SPDX-License-Identifier: Apache-2.0
"""What every ``--help`` ends with: the command as somebody types it. A test reads each with the real parser."""

from __future__ import annotations

from typing import Any, Final

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "create-vm": (
        'create-vm train --profile "NVIDIA L40S-12Q" --ssh-key ~/.ssh/id_ed25519.pub',
        "create-vm train -p t4-2q --memory 16G --lease 8h --label team=vision --no-wait",
        "create-vm train -p t4-2q --provision guest_driver --provision guest_check",
        "create-vm train -p t4-2q --dry-run",
    ),
    "delete-vm": ("delete-vm train", "delete-vm a b c --yes"),
    "show-vm": ("show-vm train", "show-vm train -o jsonpath=.addresses[0]", "show-vm train --watch"),
    "list-vms": (
        "list-vms --state running --sort -age",
        "list-vms -l team=vision,!spare -o wide",
        "list-vms -A -o csv",
    ),
    "start-vm": ("start-vm train",),
    "stop-vm": ("stop-vm train", "stop-vm a b --force"),
    "restart-vm": ("restart-vm train",),
    "rename-vm": ("rename-vm train train-old",),
    "adopt-vm": ("adopt-vm gpu-1 byhand --name train",),
    "extend-vm": ("extend-vm train --lease 4h",),
    "events": ("events train",),
    "plan": ("plan -f site.yaml",),
    "diff": ("diff -f site.yaml",),
    "apply": ("apply -f site.yaml", "apply -f site.yaml --prune", "apply -f -"),
    "export": ("export", "export --tenant research"),
    "schema": ("schema",),
    "console": ("console train", "console train --log"),
    "ssh": ("ssh train -l debian", "ssh train -- nvidia-smi"),
    "vm proxy": ("vm proxy train --port 22",),
    "vm provision": (
        "vm provision train guest_driver guest_cuda guest_check",
        "vm provision train guest_check --new-host-key --no-wait",
    ),
    "vm set": ("vm set train --label team=vision --unlabel old",),
    "host scan": ("host scan 192.0.2.11",),
    "host add": ("host add gpu-1 --address 192.0.2.11 --user debian --provisioning-key ~/.ssh/gpu-1",),
    "host check": ("host check gpu-1", "host check --address 192.0.2.11 --provisioning-key gpu-1-key"),
    "host import": ("host import -i inventory/hosts.yaml --dry-run",),
    "host list": ("host list", "host list -l rack=3 -o wide"),
    "host show": ("host show gpu-1",),
    "host set": ("host set gpu-1 --vcpu-overcommit 2 --label rack=3", "host set gpu-1 --vcpu-overcommit site"),
    "host remove": ("host remove gpu-1",),
    "host forget": ("host forget gpu-1 --confirm gpu-1",),
    "host upgrade-agent": ("host upgrade-agent gpu-1",),
    "host provision": ("host provision gpu-1 gpu-2",),
    "host cordon": ("host cordon gpu-1",),
    "host uncordon": ("host uncordon gpu-1",),
    "host plan-drain": ("host plan-drain gpu-1",),
    "gpu list": ("gpu list --model L40S --sort vms", "gpu list --host gpu-1"),
    "gpu show": ("gpu show gpu-1 41:00.0",),
    "mig show": ("mig show gpu-1",),
    "mig plan": ("mig plan gpu-1 -f config.yaml -c all-1g.10gb",),
    "mig apply": ("mig apply gpu-1 -f config.yaml -c all-balanced",),
    "mig release": ("mig release gpu-1", "mig release gpu-1 --gpu 0000:41:00.0 --yes"),
    "mig export": ("mig export gpu-1",),
    "gpu map": ("gpu map --host gpu-1",),
    "gpu plan-compaction": ("gpu plan-compaction",),
    "profile list": ("profile list", "profile list --all"),
    "profile show": ('profile show "NVIDIA L40S-12Q"',),
    "profile add": ("profile add offerings.yaml",),
    "profile remove": ("profile remove notebook",),
    "profile validate": ("profile validate offerings.yaml",),
    "image add": ("image add debian-13 ./debian-13-genericcloud-amd64.qcow2",),
    "image list": ("image list",),
    "image show": ("image show debian-13",),
    "image guest-driver": ("image guest-driver debian-13 580.95.05",),
    "image remove": ("image remove debian-13",),
    "network create": ("network create blue --subnet 10.88.1.0/24", "network create common --shared"),
    "network add": ("network add office --bridge br0 --vlan 120", "network add common"),
    "network remove": ("network remove office",),
    "network list": ("network list",),
    "network show": ("network show blue",),
    "network share": ("network share common",),
    "network unshare": ("network unshare common",),
    "network delete": ("network delete blue",),
    "tenant create": ("tenant create research",),
    "tenant set": ("tenant set research --isolation none",),
    "tenant list": ("tenant list",),
    "tenant show": ("tenant show research",),
    "tenant delete": ("tenant delete research",),
    "tenant members": ("tenant members research",),
    "tenant add-member": ("tenant add-member research uid:1000 --role tenant-admin",),
    "tenant remove-member": ("tenant remove-member research uid:1000",),
    "quota show": ("quota show research",),
    "quota set": ("quota set research gpus=2 framebuffer=40GiB vms=none",),
    "policy show": ("policy show research",),
    "policy set": ("policy set research max_lease=30d",),
    "whoami": ("whoami",),
    "login": ("login --issuer https://login.example.org/realms/gpu --client-id vgpuctl",),
    "token create": ("token create --tenant research --name ci --lifetime 30d --save token",),
    "token list": ("token list --tenant research",),
    "token revoke": ("token revoke 3f2a91c07be4 --tenant research",),
    "audit list": ("audit list --about research/train",),
    "audit export": ("audit export",),
    "audit verify": ("audit verify",),
    "operation list": ("operation list --active", "operation list --about default/train"),
    "operation show": ("operation show 523b91de --watch",),
    "operation wait": ("operation wait 523b91de",),
    "operation retry": ("operation retry 523b91de",),
    "operation abandon": ("operation abandon 523b91de",),
    "operation cancel": ("operation cancel 523b91de",),
    "driver check": ("driver check",),
    "doctor": ("doctor", "doctor --host gpu-1 --repair"),
    "capacity": ('capacity --profile "NVIDIA L40S-12Q" --memory 64G',),
    "explain": ('explain --profile "NVIDIA L40S-48Q" --vcpus 16',),
    "simulate placement": ("simulate placement --fleet fleet.yaml --requests requests.csv --out result.json",),
    "context add": ("context add site --url https://gpu.example.org:8443 --token-file ~/.token --tenant research",),
    "context use": ("context use site",),
    "context list": ("context list",),
    "context remove": ("context remove site",),
    "serve": ("serve --listen 0.0.0.0:8443 --tls-cert server.pem --tls-key server.key", "serve --simulate fleet.yaml"),
    "inventory": ("inventory",),
    "server status": ("server status",),
    "server stop": ("server stop",),
    "server backup": ("server backup vgpuctl.backup",),
    "server restore": ("server restore vgpuctl.backup",),
    "server rotate-key": ("server rotate-key",),
    "server invite": ("server invite --for 1h",),
    "server join": ("server join",),
    "server settle-restored": ("server settle-restored",),
    "completion": ("completion bash",),
    "version": ("version",),
}
"""By the words of the command. ``vm create`` has those of ``create-vm``."""


def examples_of(words: str) -> tuple[str, ...]:
    """Of one command; none of what has none."""
    noun, _, verb = words.partition(" ")
    short = {"list": "list-vms", "console": "console", "ssh": "ssh", "events": "events"}.get(verb, f"{verb}-vm")
    return EXAMPLES.get(words, EXAMPLES.get(short, ()) if noun == "vm" else ())


def add_examples(words: str, command: Any) -> None:
    """To the command's help, and that of the commands below it."""
    found = examples_of(words)
    if found:
        shown = "\n".join(f"  vgpuctl {example}" for example in found)
        command.epilog = f"\b\nExamples:\n{shown}"
    for name, child in getattr(command, "commands", {}).items():
        add_examples(f"{words} {name}", child)
