# SPDX-License-Identifier: Apache-2.0
"""Modules of the collection before a real server with hosts in memory: each in the real Ansible, and what they do
beside by themselves."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cli.main import run
from tests.fakes.certificate import over_tls
from tests.fakes.running import running_server
from tests.playbooks.late_deletions import each_delete_comes_too_late
from tests.playbooks.tasks_run import ControlNode, Task

FLEET = """\
groups:
  - {name: t4, count: 2, gpu_model: Tesla T4, gpus_per_host: 1, vcpus: 16, memory_gib: 64}
"""
VM: Task = ("vm", {"name": "train", "profile": "GRID T4-4Q", "image": "demo", "labels": {"team": "vision", "rank": 1}})


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlNode]:
    scratch = tmp_path_factory.mktemp("collection")
    (scratch / "fleet.yaml").write_text(FLEET)
    state = scratch / "state"
    simulated = ("--simulate", str(scratch / "fleet.yaml"))
    with running_server(state, *simulated, *over_tls(scratch).words, module="orchestrator.server.serve"):
        yield ControlNode(scratch, {"VGPUCTL_STATE": str(state)})


def test_a_vm_is_made_once_stopped_started_and_deleted(node: ControlNode) -> None:
    name = {"name": "train"}
    ran = node.run(
        VM, VM, ("vm", {**name, "state": "stopped"}), ("vm", {**name, "state": "stopped"}), VM,
        ("vm", {**name, "state": "started", "labels": {"rank": None}}), ("vm_info", name),
        ("vm", {**name, "state": "absent"}), ("vm", {**name, "state": "absent"}), ("vm_info", {}),
    )  # fmt: skip
    assert ran.refusals == [], ran.printed
    assert ran.changed == [True, False, True, False, False, True, False, True, False, False]
    made, _, stopped, _, kept, started, listed, gone, _, left = ran.results
    assert (made["vm"]["state"], made["vm"]["labels"]) == ("running", {"team": "vision", "rank": "1"})
    assert (stopped["vm"]["state"], kept["vm"]["state"]) == ("stopped", "stopped")
    assert (started["vm"]["state"], started["vm"]["labels"]) == ("running", {"team": "vision"})
    assert [vm["name"] for vm in listed["vms"]] == ["train"]
    assert (gone["vm"], left["vms"]) == ({}, [])


def test_a_vm_is_suspended_and_goes_on_from_its_memory(node: ControlNode) -> None:
    def vm(state: str) -> Task:
        return "vm", {"name": "sleeper", "profile": "GRID T4-4Q", "image": "demo", "state": state}

    ran = node.call(vm("suspended"), vm("suspended"), vm("stopped"), vm("started"), vm("absent"))
    assert ran.refusals == [], ran.printed
    assert ran.changed == [True, False, False, True, True]
    made, kept = ran.results[:2]
    assert kept["vm"]["suspended_bytes"] > 0
    assert made["diff"]["after"]["state"] == "suspended"
    asked = node.call(vm("suspended"), check=True)
    assert asked.results[0]["vm"]["state"] == "suspended"


def test_a_vm_is_sized_as_people_type_it_and_stays_as_it_is(node: ControlNode) -> None:
    typed = {"name": "sized", "profile": "GRID T4-4Q", "image": "demo", "memory": "2gb", "disk": "10 GiB"}
    ran = node.call(
        ("vm", {**typed, "lease": "1day"}), ("vm", typed), ("vm", {**typed, "memory": "2"}),
        ("vm", {**typed, "lease": "1month"}), ("vm", {"name": "sized", "state": "absent"}),
    )  # fmt: skip
    assert [line.split(":")[0] for line in ran.refusals] == ["memory.invalid", "lease.invalid"], ran.printed
    vm = ran.results[0]["vm"]
    assert (vm["memory_mib"], vm["disk_bytes"]) == (2048, 10 * 1024**3)
    assert vm["lease_end"] is not None
    assert ran.results[1]["changed"] is False


def test_a_vm_has_the_data_volumes_that_a_task_names(node: ControlNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUCTL_STATE", node.environment["VGPUCTL_STATE"])
    assert run(["volume", "create", "data", "--size", "1GiB"]) == 0
    wanted = {"name": "reader", "profile": "GRID T4-4Q", "image": "demo", "volumes": ["data"]}
    gone, reading = ("vm", {**wanted, "state": "absent"}), {**wanted, "volumes": ["data:ro"]}
    ran = node.call(("vm", wanted), ("vm", wanted), ("vm", reading), gone, ("vm", reading), ("vm", reading), gone)
    assert [ran.results[number]["vm"]["volumes"] for number in (0, 4)] == [["data"], ["data:ro"]], ran.printed
    assert [ran.results[number]["changed"] for number in (1, 5)] == [False, False]
    assert [line.split(":")[0] for line in ran.refusals] == ["vm.exists"], ran.printed


def test_check_mode_shows_what_would_be_and_changes_nothing(node: ControlNode) -> None:
    tasks: tuple[Task, ...] = (
        VM,
        ("tenant", {"name": "research", "members": {"uid:1000": "tenant-admin"}}),
        ("network", {"name": "blue", "subnet": "10.88.7.0/24"}),
        ("quota", {"tenant": "default", "limits": {"devices": 1}}),
        ("offering", {"name": "quarter", "kind": "time_sliced", "vgpu_type": "GRID T4-4Q"}),
        ("host", {"name": "t4-0", "cordoned": True, "labels": {"rack": 3}}),
    )
    ran = node.run(*tasks, flags=("--check", "--diff"))
    assert ran.refusals == [], ran.printed
    assert ran.changed == [True] * 6
    assert '+    "profile": "GRID T4-4Q"' in ran.printed
    assert '+    "cordoned": true' in ran.printed
    again = node.call(*tasks, check=True)
    assert [one["diff"]["before"] for one in again.results] == [one["diff"]["before"] for one in ran.results]
    assert again.results[0]["diff"]["before"] == again.results[1]["diff"]["before"] == {}


def test_check_mode_trusts_earlier_tasks_to_make_what_is_missing(tmp_path: Path) -> None:
    lab: dict[str, object] = {"tenant": "lab"}
    vm = {**lab, "name": "train", "profile": "quarter", "image": "debian-13", "network": "blue"}
    play: list[Task] = [
        ("tenant", {"name": "lab"}), ("network", {**lab, "name": "blue"}), ("quota", {**lab, "limits": {"vms": 1}}),
        ("image", {"name": "debian-13", "source": "/srv/debian-13.qcow2", "format": "qcow2"}),
        ("offering", {"name": "quarter", "kind": "time_sliced", "vgpu_type": "GRID T4-4Q"}), ("vm", vm),
        ("vm", {**lab, "name": "train", "state": "stopped"}),
        ("image", {"name": "debian-13", "guest_driver": "580.65.06"}),
        ("vm", {"name": "other", "profile": "quarter", "image": "debian-13"}), ("vm_info", lab),
        ("vm_info", {**lab, "name": "train"}), ("vm", {**lab, "name": "train", "state": "absent"}),
        ("host", {"name": "new", "labels": {"rack": 3}}),
    ]  # fmt: skip
    with running_server(tmp_path / "state", module="orchestrator.server.serve"):
        empty = ControlNode(tmp_path, {"VGPUCTL_STATE": str(tmp_path / "state")})
        ran = empty.call(*play, check=True)
        assert ran.refusals == [], ran.printed
        assert ran.changed == [True] * 9 + [False] * 3 + [True]
        assert ran.results[2]["limits"] == {"vms": 1}
        assert ran.results[5]["vm"] == {**vm, "labels": {}, "state": "running"}
        assert ran.results[6]["vm"]["state"] == "stopped"
        warned = "no tenant is called 'lab'; with --check an earlier task is trusted to make it"
        assert warned in [warning["event"]["msg"] for warning in ran.results[5]["warnings"]]
        assert not any(one.get("warnings") for one in ran.results[3:5])
        made = empty.call(*play[2:3], ("vm", vm), ("vm", {"name": "train", "state": "stopped"}))
        assert [one["code"] for one in made.results] == ["tenant.unknown", "tenant.unknown", "vm.unknown"], made.printed


def test_check_mode_refuses_what_the_server_would_refuse(node: ControlNode) -> None:
    large = {"name": "large", "profile": "GRID T4-4Q", "image": "demo", "memory_mib": 16_000_000}
    ran = node.call(("vm", large), ("vm_info", {"name": "large"}), check=True)
    assert [line.split(":")[0] for line in ran.refusals] == ["vm.never_fits"]
    assert ran.results[1]["vms"] == []


def test_tenants_networks_quotas_and_offerings_are_there_once_and_go(node: ControlNode) -> None:
    tenant: Task = ("tenant", {"name": "lab", "members": {"uid:1000": "tenant-admin", "uid:1001": "tenant-user"}})
    network: Task = ("network", {"name": "blue", "tenant": "lab", "subnet": "10.88.9.0/24"})
    quota: Task = ("quota", {"tenant": "lab", "limits": {"devices": "2", "vms": 5}})
    offering: Task = ("offering", {"name": "half", "kind": "time_sliced", "vgpu_type": "GRID T4-8Q", "numa": "strict"})
    offering[1].update(vcpus=6, memory="12 GB", disk="40G", hosts={"rack": 3})
    wanted = [tenant, network, quota, offering]
    made = node.call(*wanted, *wanted)
    assert made.refusals == [], made.printed
    assert made.changed == [True] * 4 + [False] * 4
    assert made.results[0]["tenant"]["members"] == {"uid:1000": "tenant-admin", "uid:1001": "tenant-user"}
    assert made.results[2]["limits"] == {"devices": 2, "vms": 5}
    assert made.results[3]["offering"]["hosts"] == {"rack": "3"}
    assert node.call(offering, check=True).changed == [False]
    less = node.call(
        ("tenant", {"name": "lab", "members": {"uid:1001": None}}),
        ("quota", {"tenant": "lab", "limits": {"vms": None}}),
        ("offering", {"name": "half", "kind": "time_sliced", "vgpu_type": "GRID T4-8Q"}),
    )  # fmt: skip
    assert less.changed == [True] * 3, less.printed
    assert less.results[0]["tenant"]["members"] == {"uid:1000": "tenant-admin"}
    assert (less.results[1]["limits"], less.results[2]["offering"]["numa"]) == ({"devices": 2}, "prefer")
    away: list[Task] = [
        ("network", {"name": "blue", "tenant": "lab", "state": "absent"}),
        ("offering", {"name": "half", "state": "absent"}), ("tenant", {"name": "lab", "state": "absent"}),
    ]  # fmt: skip
    gone = node.call(*away, *away[1:])
    assert gone.refusals == [], gone.printed
    assert gone.changed == [True, True, True, False, False]


def test_a_network_of_the_site_is_shared_or_not(node: ControlNode) -> None:
    kept: Task = ("network", {"name": "old", "shared": False})
    ran = node.call(("network", {"name": "old"}), kept, kept, ("network", {"name": "old", "state": "absent"}))
    assert ran.refusals == [], ran.printed
    assert ran.changed == [True, True, False, True]
    assert [one["network"].get("shared") for one in ran.results[:3]] == [True, False, False]


def test_a_security_group_has_the_rules_of_its_task_and_no_others(node: ControlNode) -> None:
    https, out = {"direction": "in", "protocol": "tcp", "first_port": 443}, {"direction": "out"}
    rules = [out, {"direction": "in", "remote": "192.0.2.1"}, https, {**out, "refuse": True}]
    web: Task = ("security_group", {"name": "web", "rules": rules})
    fewer: Task = ("security_group", {"name": "web", "rules": [https], "labels": {"team": "a"}})
    gone: Task = ("security_group", {"name": "web", "state": "absent"})
    assert node.call(web, check=True).changed == [True]
    ran = node.call(web, web, fewer, fewer, ("security_group", {"name": "web"}), gone, gone)
    assert ran.refusals == [], ran.printed
    assert ran.changed == [True, False, True, False, False, True, False]
    made, _, kept, *_ = ran.results
    assert [rule["remote"] for rule in made["security_group"]["rules"]] == ["192.0.2.1/32", None, None, None]
    assert [rule["refuse"] for rule in made["security_group"]["rules"]] == [False, False, False, True]
    assert [rule["first_port"] for rule in kept["security_group"]["rules"]] == [443]
    assert kept["security_group"]["labels"] == {"team": "a"}
    wrong = node.call(("security_group", {"name": "web", "rules": [{"direction": "in", "remote": "10.0.0.1/8"}]}))
    assert [line.split(":")[0] for line in wrong.refusals] == ["group.rule_invalid"]


def test_a_bridge_of_hosts_is_a_network_once(node: ControlNode) -> None:
    tenant: Task = ("tenant", {"name": "bridged"})
    office: Task = ("network", {"name": "office", "bridge": "br0", "dhcp_servers": ["192.0.2.1"]})
    lab: Task = ("network", {"name": "vlan", "tenant": "bridged", "bridge": "br0", "vlan": 120})
    planned = node.run(tenant, office, flags=("--check", "--diff"))
    assert planned.refusals == [], planned.printed
    assert (planned.changed, '+    "bridge": "br0"' in planned.printed) == ([True, True], True)
    made = node.call(
        tenant, office, lab, office, lab, ("network", {"name": "office"}),
        ("network", {"name": "office", "bridge": "br0", "vlan": 7}), ("network", {"name": "office", "vlan": 7}),
        ("network", {"name": "nat", "bridge": "br0", "subnet": "10.88.3.0/24"}),
        ("network", {"name": "nowhere", "bridge": "br9"}),
        ("network", {"name": "wide", "tenant": "bridged", "kind": "ovn", "subnet": "10.0.0.0/24", "mtu": 1400}),
    )  # fmt: skip
    assert made.changed == [True] * 3 + [False] * 8, made.printed
    network = planned.results[1]["diff"]["after"]
    assert network == made.results[1]["network"] == made.results[5]["network"]
    assert (made.results[2]["network"]["tenant"], made.results[2]["network"]["vlan"]) == ("bridged", 120)
    another, lone, both, none, away_from_ovn = made.refusals
    assert away_from_ovn.startswith("network.no_ovn: ")
    assert another.startswith("network.exists: ")
    assert "vlan is None, not 7" in another
    assert ("bridge" in lone, "mutually exclusive" in both, none.split(":")[0]) == (True, True, "host.no_bridge")
    away: list[Task] = [
        ("network", {"name": "vlan", "tenant": "bridged", "state": "absent"}),
        ("network", {"name": "office", "state": "absent"}), ("tenant", {"name": "bridged", "state": "absent"}),
    ]  # fmt: skip
    assert node.call(*away, *away[:2]).changed == [True, True, True, False, False]


def test_what_is_said_of_tenants_networks_and_images_is_kept(node: ControlNode) -> None:
    said = {"description": "of team A", "labels": {"team": "a", "rank": 1}}
    (node.scratch / "said.img").write_bytes(b"\x07" * 510 + b"\x55\xaa" + bytes(1024 * 1024))
    image = {"name": "said", "src": str(node.scratch / "said.img"), "format": "raw"}
    tasks: list[Task] = [
        ("tenant", {"name": "said", **said}), ("network", {"name": "said", "tenant": "said", **said}),
        ("image", {**image, **said}),
    ]  # fmt: skip
    assert node.call(*tasks, check=True).results[0]["tenant"]["labels"] == {"team": "a", "rank": "1"}
    ran = node.call(*tasks, *tasks)
    assert ran.refusals == [], ran.printed
    assert ran.changed == [True] * 3 + [False] * 3
    for one, noun in zip(ran.results[:3], ("tenant", "network", "image"), strict=True):
        assert (one[noun]["description"], one[noun]["labels"]) == ("of team A", {"team": "a", "rank": "1"})
    less: list[Task] = [(module, {**given, "labels": {"rank": None}}) for module, given in tasks]
    less = [(module, {key: one for key, one in given.items() if key != "description"}) for module, given in less]
    changed = node.call(*less, *less)
    assert changed.changed == [True] * 3 + [False] * 3, changed.printed
    assert changed.results[1]["network"]["labels"] == changed.results[2]["image"]["labels"] == {"team": "a"}
    assert changed.results[0]["tenant"]["description"] == "of team A"
    gone: list[Task] = [(module, {**given, "state": "absent"}) for module, given in reversed(tasks)]
    assert node.call(*gone).changed == [True] * 3


def test_an_image_is_sent_once_and_never_changes_under_its_name(node: ControlNode) -> None:
    files = [node.scratch / name for name in ("one.img", "two.img")]
    for number, file in enumerate(files):
        file.write_bytes(bytes([number]) * 510 + b"\x55\xaa" + bytes(1024 * 1024))
    image = {"name": "own", "src": str(files[0]), "format": "raw"}
    ran = node.run(
        ("image", image), ("image", image), ("image", {"name": "own", "guest_driver": "580.65.06"}),
        ("image", {**image, "src": str(files[1])}), ("image", {**image, "src": str(node.scratch / "none.img")}),
        ("image", {"name": "own", "state": "absent"}), ("image", {"name": "own"}),
    )  # fmt: skip
    assert ran.results[0]["image"]["sha256"] == hashlib.sha256(files[0].read_bytes()).hexdigest(), ran.printed
    assert ran.changed == [True, False, True, False, False, True, False]
    assert ran.results[2]["image"]["guest_driver"] == "580.65.06"
    assert [line.split(":")[0] for line in ran.refusals] == ["image.exists", "file.unreadable", "image.unknown"]


def test_an_image_of_what_is_no_file_is_refused_at_once(node: ControlNode) -> None:
    pipe = node.scratch / "pipe"
    os.mkfifo(pipe)
    ran = node.call(*(("image", {"name": "own", "src": src}) for src in (str(pipe), "/dev/zero", str(node.scratch))))
    assert [line.split(":")[0] for line in ran.refusals] == ["file.unreadable"] * 3


def test_what_is_no_name_is_refused_before_the_server_is_asked(node: ControlNode) -> None:
    wanted = {"profile": "GRID T4-4Q", "image": "demo"}
    ran = node.call(
        ("vm", {**wanted, "name": ""}), ("vm", {"name": "", "state": "absent"}), ("vm", {**wanted, "name": "a/b"}),
        ("tenant", {"name": "."}), ("quota", {"tenant": "", "limits": {"devices": 1}}), ("host", {"name": ".."}),
    )  # fmt: skip
    assert [line.split(": ")[0] for line in ran.refusals] == ["request.invalid"] * 6
    assert "'' is no name" in ran.refusals[0]


def test_a_host_is_cordoned_and_labelled(node: ControlNode) -> None:
    wanted: Task = ("host", {"name": "t4-1", "cordoned": True, "labels": {"rack": 3}, "vcpu_overcommit": "2.0"})
    free: Task = ("host", {"name": "t4-1", "cordoned": False, "labels": {"rack": None}, "vcpu_overcommit": "site"})
    ran = node.call(wanted, wanted, free, free)
    assert ran.refusals == [], ran.printed
    assert ran.changed == [True, False, True, False]
    assert ran.results[1]["host"]["labels"] == {"rack": "3"}
    assert (ran.results[1]["host"]["cordoned"], ran.results[1]["host"]["vcpu_overcommit"]) == (True, 2.0)
    assert ran.results[3]["host"]["vcpu_overcommit"] is None


def test_a_host_keeps_cpus_for_vms_that_have_theirs_alone(node: ControlNode) -> None:
    name = {"name": "t4-1"}
    ran = node.call(
        ("host", {**name, "pinnable_cpus": "4-7,12-15,6"}), ("host", {**name, "pinnable_cpus": "12-15,4-7"}),
        ("host", {**name, "cordoned": False}), ("host", {**name, "pinnable_cpus": "none"}),
        ("host", {**name, "pinnable_cpus": "none"}), ("host", {**name, "pinnable_cpus": ""}),
        ("host", {**name, "pinnable_cpus": "4-99"}),
    )  # fmt: skip
    assert ran.changed == [True, False, False, True, False, False, False], ran.printed
    assert [ran.results[number]["host"]["pinnable_cpus"] for number in (0, 2, 3)] == ["4-7,12-15", "4-7,12-15", ""]
    assert [line.split(":")[0] for line in ran.refusals] == ["host.cpus_invalid"] * 2


def test_a_refusal_is_one_line_with_its_code_and_changes_nothing(node: ControlNode) -> None:
    vm = {"profile": "GRID T4-4Q", "image": "demo"}
    ran = node.call(
        ("vm", {"name": "new"}), ("vm", {**vm, "name": "new", "profile": "GRID T4-5Q"}),
        ("vm", {**vm, "name": "new", "image": "none"}), ("vm", {**vm, "name": "new", "tenant": "nobody"}),
        ("vm", {**vm, "name": "-"}), ("quota", {"tenant": "nobody", "limits": {"devices": 1}}),
        ("quota", {"tenant": "default", "limits": {"devices": "many"}}),
        ("tenant", {"name": "new", "members": {"uid:1": "king"}}), ("offering", {"name": "new", "kind": "mig"}),
        ("host", {"name": "nobody"}), ("host", {"name": "t4-0", "address": "192.0.2.1"}),
        ("network", {"name": "new", "subnet": "10.0.0.0/99"}), ("image", {"name": "new", "source": "/missing"}),
        ("vm_info", {"context": "nowhere"}), ("vm_info", {"state": "asleep"}),
    )  # fmt: skip
    assert [one.get("code") for one in ran.results] == [
        "vm.unknown", "profile.unknown", "image.unknown", "tenant.unknown", "vm.name_invalid", "tenant.unknown",
        "quota.invalid", "role.invalid", "offering.invalid", "host.unknown", "host.exists",
        "network.subnet_invalid", "image.source_refused", "context.unknown", "request.invalid",
    ]  # fmt: skip
    assert all(line.startswith(f"{one['code']}: ") for one, line in zip(ran.results, ran.refusals, strict=True))
    assert not any("\n" in line for line in ran.refusals)
    assert ran.changed == [False] * 15


def test_a_vm_is_not_changed_under_its_name(node: ControlNode) -> None:
    vm = {"name": "kept", "profile": "GRID T4-4Q", "image": "demo"}
    ran = node.call(
        ("vm", vm), ("vm", {**vm, "memory_mib": 8192}), ("vm", {**vm, "user_data": "#cloud-config\n"}),
        ("vm", {**vm, "with_moves": True}), ("vm", {**vm, "addresses": {"default": "10.88.0.9"}}),
        ("vm", {"name": "kept", "state": "absent", "wait": False}), ("vm", {"name": "kept", "state": "absent"}),
    )  # fmt: skip
    assert [line.partition(" (")[0] for line in ran.refusals] == [
        "vm.exists: there is already a VM kept: memory_mib is 4096, not 8192",
        "vm.exists: there is already a VM kept: it was made without user data",
        "vm.exists: there is already a VM kept: default is None, not 10.88.0.9",
    ]


@pytest.mark.parametrize(
    ("module", "made"),
    [
        ("vm", {"profile": "GRID T4-4Q", "image": "demo"}), ("network", {"subnet": "10.88.9.0/24"}), ("tenant", {}),
        ("offering", {"kind": "time_sliced", "vgpu_type": "GRID T4-4Q"}),
    ],
)  # fmt: skip
def test_what_goes_while_it_is_being_made_absent_is_absent(
    node: ControlNode, tmp_path: Path, module: str, made: dict[str, object]
) -> None:
    state = Path(node.environment["VGPUCTL_STATE"])
    with each_delete_comes_too_late(state, tmp_path / "late"):
        absent = {"name": "passing", "state": "absent", "state_dir": str(tmp_path / "late")}
        ran = node.call((module, {"name": "passing", **made}), (module, absent), (module, absent))
    assert ran.refusals == []
    assert ran.changed == [True, True, False]


def test_a_server_elsewhere_is_reached_with_a_token_that_is_never_printed(node: ControlNode) -> None:
    state, file = Path(node.environment["VGPUCTL_STATE"]), node.scratch / "reader.token"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VGPUCTL_STATE", str(state))
        assert run(["token", "create", "--role", "read-only", "--save", str(file)]) == 0
    found = re.search(r"127\.0\.0\.1:([0-9]+)", (state / "serve.log").read_text())
    assert found is not None
    there = {"api_url": f"https://{found[0]}", "ca_file": str(node.scratch / "server.pem")}
    shown = {**there, "api_token": file.read_text().strip()}
    ran = node.run(
        ("vm_info", shown), ("vm_info", {**there, "api_token_file": str(file)}),
        ("vm", {**shown, "name": "mine", "profile": "GRID T4-4Q", "image": "demo"}), ("vm_info", there),
        ("vm_info", {"api_url": there["api_url"], "api_token_file": str(file)}), flags=("-vvv",),
    )  # fmt: skip
    assert "vms" in ran.results[0], ran.printed
    assert ran.results[0]["vms"] == ran.results[1]["vms"]
    assert [one["code"] for one in ran.results[2:]] == ["access.denied", "token.missing", "server.not_trusted"]
    assert shown["api_token"] not in ran.printed


def test_a_server_that_is_not_there_is_said_in_one_line(node: ControlNode) -> None:
    (node.scratch / "token").write_text("vgpu_nothing\n")
    (node.scratch / "token").chmod(0o644)
    ran = node.call(
        ("vm_info", {"state_dir": str(node.scratch / "none")}), ("vm_info", {"api_url": "https://127.0.0.1:1"}),
        ("vm_info", {"api_url": "http://127.0.0.1"}), ("vm_info", {"api_token_file": str(node.scratch / "token")}),
    )  # fmt: skip
    assert [line.split(":")[0] for line in ran.refusals] == [
        "server.unreachable", "server.unreachable", "context.url_invalid", "token.exposed",
    ]  # fmt: skip
