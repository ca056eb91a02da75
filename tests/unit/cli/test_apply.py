# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from orchestrator.client.autostart import connect
from orchestrator.client.client import Client
from tests.fakes.running import running_server
from tests.fakes.typed import Cli

WANTED = """\
schema_version: 1
label: team
offerings:
  - name: quarter
    kind: time_sliced
    vgpu_type: GRID T4-4Q
networks:
  - name: blue
    subnet: 10.88.7.0/24
images:
  - name: other
    source: /srv/other.qcow2
vms:
  - name: one
    profile: t4-small
    image: guest
    vcpus: 4
    memory: 1GiB
    disk: 2GiB
    network: blue
  - name: two
    profile: t4-small
    image: other
    state: stopped
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("state")) as directory:
        yield directory


@pytest.fixture
def client(state: Path) -> Iterator[Client]:
    """Nothing that a file made is left from the test before."""
    connection = connect(state)
    client = Client(connection)
    for vm in client.vms():
        client.wait(client.delete_vm(vm["name"], vm["tenant"]))
    if "other" in {image["name"] for image in client.images()}:
        client.remove_image("other")
    yield client
    connection.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "wanted.yaml"
    (tmp_path / "other.qcow2").write_bytes(b"disk")
    path.write_text(WANTED.replace("/srv/", f"{tmp_path}/"))
    return path


def _states(client: Client) -> dict[str, str]:
    return {f"{vm['tenant']}/{vm['name']}": vm["state"] for vm in client.vms()}


def test_a_file_is_planned_made_and_then_nothing_is_left_to_do(cli: Cli, client: Client, file: Path) -> None:
    planned = cli("plan", "-f", str(file), "-o", "json")
    assert planned.code == 3
    actions = [(change["kind"], change["name"], change["action"]) for change in json.loads(planned.out)]
    vms = [("vm", "default/one", "add"), ("vm", "default/two", "add")]
    site = [("offering", "quarter", "add"), ("network", "blue", "add")]
    assert actions in ([*site, ("image", "other", "add"), *vms], [("image", "other", "add"), *vms])
    assert _states(client) == {}

    names = [name for _, name, _ in actions]
    assert cli("plan", "-f", str(file), "-o", "name").out.split() == names
    rows = csv.DictReader(io.StringIO(cli("plan", "-f", str(file), "-o", "csv").out))
    assert [(row["KIND"], row["NAME"], row["ACTION"]) for row in rows] == actions

    applied = cli("apply", "-f", str(file))
    assert (applied.code, applied.out) == (0, f"{len(actions)} of {len(actions)} changes made\n")
    assert "✓ vm default/one: added" in applied.err
    assert _states(client) == {"default/one": "running", "default/two": "stopped"}
    assert {network["name"]: network["subnet"] for network in client.networks()}["blue"] == "10.88.7.0/24"

    assert [one["vgpu_type"] for one in client.offerings()] == ["GRID T4-4Q"]

    before = client.operations()
    assert cli("plan", "-f", str(file)).out == "everything is as it should be\n"
    again = cli("apply", "-f", str(file), "-o", "json")
    assert (again.code, again.out) == (0, "[]\n")
    assert client.operations() == before


def test_tenants_come_first_and_their_limits_are_kept_as_the_file_says(cli: Cli, client: Client, file: Path) -> None:
    text = "schema_version: 1\ntenants:\n  - name: red\n    quota: {vms: 1, framebuffer: 40GiB}\n  - name: plain\n"
    file.write_text(text + "vms:\n  - {name: one, tenant: red, profile: t4-small, image: guest}\n")
    assert (cli("plan", "-f", str(file)).code, cli("apply", "-f", str(file)).code) == (3, 0)
    assert _states(client) == {"red/one": "running"}
    limits = {line["resource"]: line["limit"] for line in client.quota("red")}
    assert (limits["vms"], limits["framebuffer"], limits["devices"]) == (1, 40 * 1024, None)
    assert (cli("plan", "-f", str(file)).code, cli("diff", "-f", str(file)).out) == (0, "")

    file.write_text(file.read_text().replace("vms: 1", "vms: none"))
    assert cli("diff", "-f", str(file)).out.splitlines() == ["~ tenant red", "    - vms: 1", "    + vms: none"]
    assert "✓ tenant red: set" in cli("apply", "-f", str(file)).err
    assert (cli("plan", "-f", str(file)).code, client.quota("red")[0]["limit"]) == (0, None)

    file.write_text(file.read_text().replace("vms: none", "vans: 1"))
    assert "wanted.yaml:4: tenants.0.quota: there is no quota for 'vans'" in cli("plan", "-f", str(file)).err


def test_only_what_runs_otherwise_is_started_and_stopped(cli: Cli, client: Client, file: Path) -> None:
    assert cli("apply", "-f", str(file)).code == 0
    text = file.read_text().replace("    network: blue\n", "    network: blue\n    state: stopped\n")
    file.write_text(text.replace("image: other\n    state: stopped\n", "image: other\n"))
    assert cli("diff", "-f", str(file)).out.splitlines() == [
        "~ vm default/one", "    - state: running", "    + state: stopped",
        "~ vm default/two", "    - state: stopped", "    + state: running",
    ]  # fmt: skip
    assert cli("apply", "-f", str(file)).code == 0
    assert _states(client) == {"default/one": "stopped", "default/two": "running"}


def test_what_cannot_be_changed_is_refused_by_name_and_the_rest_is_made(cli: Cli, client: Client, file: Path) -> None:
    assert cli("apply", "-f", str(file)).code == 0
    text = file.read_text().replace("vcpus: 4", "vcpus: 8")
    file.write_text(text + "  - name: three\n    profile: t4-small\n    image: guest\n")
    outcome = cli("apply", "-f", str(file), "-o", "json")
    assert outcome.code == 5
    done = {row["name"]: (row["done"], (row["error"] or {}).get("code")) for row in json.loads(outcome.out)}
    assert done == {"default/one": (False, "manifest.cannot_change"), "default/three": (True, None)}
    assert json.loads(outcome.err)["error"]["code"] == "manifest.partial"
    assert client.vm("one", "default")["vcpus"] == 4
    assert "✗ vm default/one: it exists otherwise: vcpus is 4, wanted 8" in cli("apply", "-f", str(file)).err


def test_a_command_that_makes_what_an_apply_cannot_is_named(cli: Cli, file: Path) -> None:
    assert cli("apply", "-f", str(file)).code == 0
    there = file.read_text()
    for before, after, hint in (
        ("profile: t4-small", "profile: GRID T4-4Q", 'vgpuctl vm resize one --tenant default --profile "GRID T4-4Q"'),
        ("vcpus: 4", "vcpus: 8", "vgpuctl vm resize --help"),
        ("image: guest", "image: other", "change the file, or delete the object"),
    ):
        assert before in there
        file.write_text(there.replace(before, after, 1))
        (refused,) = json.loads(cli("apply", "-f", str(file), "-o", "json").out)
        assert hint in refused["error"]["hint"]


def test_one_vm_that_fails_does_not_keep_the_others(cli: Cli, client: Client, file: Path) -> None:
    file.write_text(file.read_text().replace("name: two", "name: fails"))
    outcome = cli("apply", "-f", str(file))
    assert outcome.code == 9
    assert "✓ vm default/one: added" in outcome.err
    assert re.search(r"✗ vm default/fails: .*\[gpu\.create_failed\]", outcome.err)
    assert _states(client)["default/one"] == "running"


def test_pruning_deletes_what_the_label_made_and_nothing_else(cli: Cli, client: Client, file: Path) -> None:
    assert cli("apply", "-f", str(file)).code == 0
    assert cli("create-vm", "by-hand", "--profile", "t4-small", "--image", "guest").code == 0
    file.write_text("schema_version: 1\nlabel: team\nvms: []\n")
    assert cli("plan", "-f", str(file)).code == 0
    assert cli("plan", "--prune", "-f", str(file)).code == 3
    unasked = cli("apply", "--prune", "-f", str(file))
    assert (unasked.code, "[cli.not_confirmed]" in unasked.err) == (2, True)
    assert len(_states(client)) == 3
    assert cli("apply", "--prune", "-f", str(file), "--yes").code == 0
    assert _states(client) == {"default/by-hand": "running"}
    file.write_text("schema_version: 1\nlabel: somebody-else\n")
    assert cli("plan", "--prune", "-f", str(file)).code == 0


def test_many_vms_are_each_an_operation_of_their_own(cli: Cli, client: Client, file: Path) -> None:
    vms = "".join(f"  - {{name: vm{n}, profile: t4-small, image: guest}}\n" for n in range(12))
    file.write_text(f"schema_version: 1\nvms:\n{vms}")
    assert cli("apply", "--parallel", "5", "-f", str(file)).code == 0
    made = client.vms()
    assert len({vm["operation"] for vm in made}) == len(made) == 12


MISTAKES = {
    "": (1, ""),
    "schema_version: 2\n": (1, "schema_version"),
    "schema_version: 1\nvm: []\n": (2, "vm"),
    "schema_version: 1\nvms:\n  - name: ok\n    image: i\n": (3, "profile: is missing"),
    "schema_version: 1\nvms:\n  - name: A b\n    profile: p\n    image: i\n": (3, "name 'A b' is not allowed"),
    "schema_version: 1\nvms:\n  - name: a\n    profile: p\n    image: i\n    vcpus: '2'\n": (6, "is no whole number"),
    "schema_version: 1\nvms:\n  - name: a\n    profile: p\n    image: i\n    vcpus: yes\n": (6, "is no whole number"),
    "schema_version: 1\nvms:\n  - name: a\n    profile: p\n    image: i\n    memory: 4EB\n": (6, "'4EB' is not a size"),
    "schema_version: 1\nvms:\n  - name: a\n    profile: p\n    image: i\n    disk: 1\n": (6, "is no text"),
    "schema_version: 1\nvms:\n  - name: a\n    profile: p\n    image: i\n    owner: x\n": (6, "no such field"),
    "schema_version: 1\nvms:\n  - name: a\n    profile: p\n    image: i\n    ssh_keys: [x]\n": (6, "not an SSH public"),
    "schema_version: 1\nvms:\n  - {name: a, profile: p, image: i, from_snapshot: a/b, from_backup: 1f30c8aa}\n": (
        3,
        "not both",
    ),
    "schema_version: 1\nvms:\n  - &a {name: a, profile: p, image: i}\n  - *a\n": (3, "anchors"),
    "schema_version: 1\nschema_version: 1\n": (2, "given twice"),
    "schema_version: 1\nofferings:\n  - {name: a, kind: mig}\n": (3, "mig needs mig_profile"),
    "schema_version: 1\nofferings:\n  - {name: t4-2q, kind: mig, mig_profile: 1g.10gb}\n": (3, "comes with vgpuctl"),
    "schema_version: 1\nnetworks:\n  - {name: a}\n  - {name: a}\n": (4, "a is given twice"),
    "schema_version: 1\nnetworks:\n  - {name: a, subnet: 8.8.8.0/24}\n": (3, "cannot be a network"),
    "schema_version: 1\nnetworks:\n  - {name: a, vlan: 7}\n": (3, "given with a bridge"),
    "schema_version: 1\nnetworks:\n  - {name: a, bridge: br0, subnet: 10.9.0.0/24}\n": (3, "subnet or bridge"),
    "schema_version: 1\nnetworks:\n  - name: a\n    bridge: ../br0\n": (4, "cannot be a bridge"),
    "schema_version: 1\nnetworks:\n  - name: a\n    bridge: br0\n    vlan: 4095\n": (5, "is more than 4094"),
    "schema_version: 1\nnetworks:\n  - {name: a, bridge: br0, dhcp_servers: [x]}\n": (3, "cannot be DHCP servers"),
    "schema_version: 1\nvms: !!python/object/apply:os.system [id]\n": (2, ""),
    "schema_version: 1\n---\nschema_version: 1\n": (2, "document"),
    "schema_version: 1\nvms: {}\n": (2, "is no list"),
    "{" * 100: (1, "nested"),
    "\tschema_version: 1\n": (1, "not YAML"),
}


@pytest.mark.parametrize(("text", "line", "reason"), [(text, *said) for text, said in MISTAKES.items()])
@pytest.mark.usefixtures("client")
def test_a_mistake_in_a_file_names_file_line_and_reason(
    cli: Cli, file: Path, text: str, line: int, reason: str
) -> None:
    file.write_text(text)
    for verb in ("plan", "diff", "apply"):
        outcome = cli(verb, "-f", str(file))
        assert (outcome.code, outcome.out) == (2, "")
        first = outcome.err.splitlines()[0]
        assert first.startswith(f"error: {file}:{line}: ")
        assert first.endswith("[manifest.invalid]")
        assert reason in first


def test_every_mistake_is_told(cli: Cli, file: Path) -> None:
    file.write_text("schema_version: 1\nvms:\n  - {name: a, profile: p, image: i, vcpus: 0, memory: x, disk: y}\n")
    assert cli("plan", "-f", str(file)).err.count("[manifest.invalid]") == 4


def test_user_data_is_not_repeated_by_an_error(cli: Cli, file: Path) -> None:
    vm = "{name: a, profile: p, image: i, user_data: planted-secret}"
    file.write_text(f"schema_version: 1\nvms:\n  - {vm}\n")
    outcome = cli("plan", "-f", str(file))
    assert outcome.code == 2
    assert "user_data" in outcome.err
    assert "planted-secret" not in outcome.err


@pytest.mark.parametrize("name", ["missing.yaml", ".", "fifo", "binary"])
def test_what_is_no_file_of_text_is_refused(cli: Cli, tmp_path: Path, name: str) -> None:
    import os

    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert "[file." in cli("apply", "-f", str(tmp_path / name)).err


def test_pruning_without_a_label_is_refused(cli: Cli, file: Path) -> None:
    file.write_text("schema_version: 1\n")
    outcome = cli("apply", "--prune", "-f", str(file))
    assert (outcome.code, "manifest.no_label" in outcome.err) == (2, True)


UNKNOWN = """\
schema_version: 1
tenants:
  - {name: red, quota: {"vgpus:t4-smal": 2, "devices:T4": 1, "vgpus:GRID T4-1Q": 1, vms: 3}}
networks:
  - {name: lan, tenant: rad, subnet: 10.9.0.0/24}
offerings:
  - {name: pooled, kind: time_sliced, vgpu_type: GRID T4-1Q, pool: fsat}
vms:
  - {name: one, profile: t4-smal, image: guest}
  - {name: two, profile: t4-small, image: gest, network: none, host: gpu7, tenant: nobody}
  - {name: three, profile: t4-small, image: guest, gpu: "0000:99:00.0"}
  - {name: four, profile: t4-small, image: guest, host: gpu1, gpu: "99:00.0"}
"""


@pytest.mark.parametrize("command", ["plan", "diff", "apply"])
def test_a_file_that_names_what_is_not_there_is_refused_before_anything_is_planned(
    cli: Cli, client: Client, file: Path, command: str
) -> None:
    file.write_text(UNKNOWN)
    done = cli(command, "-f", str(file), "-o", "json")
    error = json.loads(done.err)["error"]
    assert (done.code, done.out, error["code"]) == (4, "", "manifest.unknown_name")
    assert [(reason["code"], reason["subjects"]) for reason in error["reasons"]] == [
        ("quota.name_unknown", ["tenant red"]),
        ("tenant.unknown", ["network lan"]),
        ("tenant.unknown", ["vm nobody/two"]),
        ("image.unknown", ["vm nobody/two"]),
        ("network.unknown", ["vm nobody/two"]),
        ("profile.unknown", ["vm default/one"]),
        ("host.unknown", ["vm nobody/two"]),
        ("gpu.unknown", ["vm default/three"]),
        ("gpu.unknown", ["vm default/four"]),
        ("pool.unknown", ["offering pooled"]),
    ]
    assert "did you mean guest?" in error["reasons"][3]["message"]
    assert _states(client) == {}


def test_what_is_exported_is_what_there_is(
    cli: Cli, client: Client, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("apply", "-f", str(file)).code == 0
    exported = cli("export")
    assert exported.code == 0
    assert "name: quarter" in exported.out
    file.write_text(exported.out)
    assert (cli("plan", "-f", str(file)).code, cli("diff", "-f", str(file)).out) == (0, "")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(exported.out.encode())))
    assert cli("plan", "-f", "-").code == 0
    monkeypatch.setattr("sys.stdin", None)
    assert cli("plan", "-f", "-").code == 2


BRIDGED = """\
schema_version: 1
networks:
  - name: office
    bridge: br0
    dhcp_servers: [192.0.2.1]
"""


def test_a_network_on_a_bridge_of_hosts_is_added_exported_and_kept(cli: Cli, client: Client, file: Path) -> None:
    file.write_text(BRIDGED)
    (change,) = json.loads(cli("plan", "-f", str(file), "-o", "json").out)
    assert [(one["field"], one["wanted"]) for one in change["fields"]] == [
        ("bridge", "br0"), ("dhcp_servers", "192.0.2.1"),
    ]  # fmt: skip
    assert cli("apply", "-f", str(file)).code == 0
    told = client.network("office", None)
    assert (told["bridge"], told["vlan"], told["dhcp_servers"], told["shared"]) == ("br0", None, ["192.0.2.1"], True)
    assert cli("plan", "-f", str(file)).code == 0
    file.write_text(cli("export").out)
    assert "bridge: br0" in file.read_text()
    assert cli("plan", "-f", str(file)).code == 0
    file.write_text(BRIDGED.replace("    bridge: br0\n    dhcp_servers: [192.0.2.1]\n", ""))
    refused = cli("apply", "-f", str(file))
    assert (refused.code, "bridge is br0, wanted none" in refused.err) == (5, True), refused.err


def test_labels_of_vms_are_in_a_file_and_set_in_place(cli: Cli, client: Client, file: Path) -> None:
    file.write_text(file.read_text().replace("name: one\n", "name: one\n    labels: {team: vision}\n"))
    assert cli("apply", "-f", str(file)).code == 0
    client.change_vm("one", "default", {"labels": {"rack": "3"}})
    assert "rack: '3'\n    team: vision\n" in cli("export").out
    assert cli("plan", "-f", str(file)).code == 0, "labels that the file does not name stay"
    file.write_text(file.read_text().replace("team: vision", "team: sound"))
    (change,) = json.loads(cli("plan", "-f", str(file), "-o", "json").out)
    assert (change["action"], change["fields"][0]["field"]) == ("set", "labels.team")
    assert cli("apply", "-f", str(file)).code == 0
    assert client.vm("one", "default")["labels"] == {"rack": "3", "team": "sound"}
    assert _states(client) == {"default/one": "running", "default/two": "stopped"}
    file.write_text(file.read_text().replace("team: sound", "-team: sound"))
    assert "is not a label" in cli("plan", "-f", str(file)).err


def test_a_file_protects_vms_and_none_that_is_protected_is_pruned(cli: Cli, client: Client, file: Path) -> None:
    text = file.read_text()
    file.write_text(text.replace("  - name: one\n", "  - name: one\n    protected: true\n"))
    assert cli("apply", "-f", str(file)).code == 0
    assert client.vm("one", "default")["protected"]
    file.write_text(text)
    assert cli("plan", "-f", str(file)).out == "everything is as it should be\n"
    file.write_text(text[: text.index("vms:")])
    refused = cli("apply", "-f", str(file), "--prune", "--yes")
    assert refused.code != 0
    assert "vgpuctl vm set one --tenant default --no-protect" in refused.err
    assert set(_states(client)) == {"default/one"}
    file.write_text(text.replace("  - name: one\n", "  - name: one\n    protected: false\n"))
    assert cli("apply", "-f", str(file)).code == 0
    assert not client.vm("one", "default")["protected"]


def test_the_schema_of_the_file_names_all_that_it_may_hold(cli: Cli) -> None:
    properties = json.loads(cli("schema").out)["properties"]
    assert {"tenants", "offerings", "networks", "images", "vms", "label"} <= set(properties)


def test_apply_names_what_it_has_changed(cli: Cli, file: Path) -> None:
    file.write_text("schema_version: 1\nnetworks:\n- name: named\n  subnet: 10.88.77.0/24\n")
    assert cli("apply", "-f", str(file), "-o", "name").out == "named\n"
    assert cli("apply", "-f", str(file), "-o", "csv").out == "NAME,KIND,ACTION,DONE\n"
    assert cli("network", "delete", "named", "--shared", "--yes").code == 0
