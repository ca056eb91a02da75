# SPDX-License-Identifier: Apache-2.0
"""Who types what. What depends on the site (its hosts, a vGPU type, an image, the address) is filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Person = Literal["operator", "tenant", "programmer"]

OFFERING: Final = """\
schema_version: 1
offerings:
  - name: vision-half
    description: for the vision team, on its own hosts
    kind: time_sliced
    vgpu_type: {vgpu_type}
    hosts: {{team: vision}}
"""
PROGRAM: Final = """\
from orchestrator.client.opening import open_client
from orchestrator.core.errors import QuotaExceeded

client = open_client("{url}", token_file="robot.token", ca_file="pool.pem")
wanted = {{
    "profile": "vision-half", "image": "{image}",
    "vcpus": {size.vcpus}, "memory_mib": {size.memory_mib}, "disk_bytes": {size.disk_mib} * 1024**2,
}}
for name in ("job-1", "job-2", "job-3"):
    try:
        client.wait(client.create_vm({{**wanted, "name": name, "tenant": "vision"}}), timeout_s=600)
        print(name, client.vm(name, "vision")["state"])
    except QuotaExceeded as error:
        print(name, error.code)
for vm in client.vms("vision"):
    if vm["name"].startswith("job-"):
        client.wait(client.delete_vm(vm["name"], "vision"))
print([vm["name"] for vm in client.vms("vision")])
"""
FILES: Final[dict[Person, dict[str, str]]] = {
    "operator": {"vision.yaml": OFFERING}, "tenant": {}, "programmer": {"jobs.py": PROGRAM},
}  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """``handed``: files of the operator that are given to the person before it begins."""

    person: Person
    title: str
    commands: tuple[str, ...]
    handed: tuple[str, ...] = ()


SCENES: Final = (
    Scene(
        "operator",
        "The operator looks at the hosts, gives a team one of them, and tokens to two of its members.",
        (
            "vgpuctl host list",
            "vgpuctl gpu list --host {host}",
            "vgpuctl host set {host} --label team=vision",
            "cat vision.yaml",
            "vgpuctl profile validate vision.yaml",
            "vgpuctl profile add vision.yaml",
            "vgpuctl tenant create vision",
            "vgpuctl quota set vision vms=3",
            "vgpuctl token create --tenant vision --name ann --lifetime 30d --save ann.token",
            "vgpuctl token create --tenant vision --name robot --lifetime 30d --save robot.token",
            "vgpuctl token list --tenant vision",
        ),
    ),
    Scene(
        "tenant",
        "Ann has an address, a token and a certificate to trust. She sees her team's things and no hosts.",
        (
            "vgpuctl context add pool --url {url} --ca-file pool.pem --token-file ann.token",
            "vgpuctl whoami",
            "vgpuctl profile show vision-half",
            "vgpuctl explain --profile vision-half {size.options}",
            "vgpuctl create-vm notebook --profile vision-half --image {image} {size.options}",
            "vgpuctl list-vms",
            "vgpuctl events notebook",
            "vgpuctl quota show vision",
        ),
        handed=("ann.token", "pool.pem"),
    ),
    Scene(
        "programmer",
        "A program of the same team makes VMs, meets the quota, and gives back what it made.",
        ("cat jobs.py", "python jobs.py"),
        handed=("robot.token", "pool.pem"),
    ),
    Scene(
        "operator",
        "The operator sees what became of it, and who did what.",
        (
            "vgpuctl list-vms --all-tenants",
            "vgpuctl gpu map --host {host}",
            "vgpuctl operation list --limit 8",
            "vgpuctl audit list --limit 8",
        ),
    ),
    Scene(
        "tenant",
        "Ann gives her VM back.",
        ("vgpuctl stop-vm notebook", "vgpuctl delete-vm notebook --yes", "vgpuctl list-vms"),
    ),
    Scene("operator", "Nothing is left.", ("vgpuctl gpu list --host {host}", "vgpuctl doctor")),
)
