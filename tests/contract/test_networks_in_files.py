# SPDX-License-Identifier: Apache-2.0
"""Networks of kind ovn, security groups and addresses in files for ``apply``, down to rows in OVN's own northbound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.client import Client
from tests.fakes.ovn_databases import RealOvn
from tests.fakes.running import client_of, running_server
from tests.fakes.typed import Cli, cli_of

WANTED = """\
schema_version: 1
tenants:
  - name: red
networks:
  - name: wide
    kind: ovn
    tenant: red
    subnet: 10.0.0.0/24
    more_subnets: [10.1.0.0/24]
    mtu: 1400
    dns_servers: [192.0.2.53]
    search_domains: [lab.example.org]
    dhcp_options: {ntp_server: "192.0.2.7,192.0.2.8", bootfile_name: boot.ipxe}
    flow_log: refused
    labels: {team: a}
security_groups:
  - name: web
    tenant: red
    rules: [in tcp 443, in tcp 8000-8080 from group db, out any]
    uses: [{network: wide}]
    description: front
  - name: db
    tenant: red
    rules: [in tcp 5432 from group web, out udp 53 to 192.0.2.0/24, refuse out any to group web]
    uses: [{vm: train}, {vm: train, network: wide}]
vms:
  - name: train
    tenant: red
    profile: GRID T4-4Q
    image: guest
    vcpus: 1
    memory: 256MiB
    disk: 2GiB
    network: wide
    addresses: {wide: 10.1.0.9}
"""
AS_WANTED = "everything is as it should be\n"


@pytest.fixture
def state(tmp_path: Path, ovn: RealOvn) -> Iterator[Path]:
    with running_server(tmp_path / "state", ovn.socket("northbound"), module="tests.contract.ovn_server") as directory:
        yield directory


@pytest.fixture
def client(state: Path) -> Client:
    return client_of(state)


@pytest.fixture
def cli(state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return cli_of(state, monkeypatch, capsys)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "wanted.yaml").write_text(WANTED)
    return tmp_path / "wanted.yaml"


def test_a_file_makes_networks_and_groups_and_an_export_is_the_same_again(
    cli: Cli, client: Client, file: Path, ovn: RealOvn
) -> None:
    assert cli("plan", "-f", str(file)).code == 3
    applied = cli("apply", "-f", str(file))
    assert applied.code == 0, applied.err
    assert cli("plan", "-f", str(file)).out == AS_WANTED
    network, vm = client.network("wide", "red"), client.vm("train", "red")
    assert (network["mtu"], network["more_subnets"], network["flow_log"]) == (1400, ["10.1.0.0/24"], "refused")
    assert vm["cards"][0]["address"] == "10.1.0.9"
    options = ovn.nbctl("--bare", "--columns=options", "find", "dhcp_options", 'cidr="10.1.0.0/24"')
    for option in ("mtu=1400", "ntp_server={192.0.2.7,192.0.2.8}", 'bootfile_name="boot.ipxe"',
                   'domain_search_list="lab.example.org"', "dns_server={192.0.2.53}"):  # fmt: skip
        assert option in options
    assert "10.1.0.9" in ovn.nbctl("--bare", "--columns=addresses", "list", "logical_switch_port")
    exported = cli("export").out
    file.write_text(exported)
    assert cli("plan", "-f", str(file)).out == AS_WANTED
    for said in ("10.1.0.0/24", "wide: 10.1.0.9", "in tcp 8000-8080 from group db", "vm: train", "team: a", "front",
                 "refuse out any to group web", "flow_log: refused"):  # fmt: skip
        assert said in exported, exported


def test_what_differs_is_told_and_set_in_place_or_refused(cli: Cli, client: Client, file: Path, ovn: RealOvn) -> None:
    assert cli("apply", "-f", str(file)).code == 0
    changed = WANTED.replace("more_subnets: [10.1.0.0/24]", "more_subnets: [10.1.0.0/24, 10.2.0.0/24]")
    changed = (
        changed.replace("mtu: 1400", "mtu: 1300")
        .replace("flow_log: refused", "flow_log: off")
        .replace("in tcp 443", "in tcp 80")
        .replace("{vm: train}, ", "")
    )
    file.write_text(changed)
    assert cli("diff", "-f", str(file)).out.splitlines() == [
        "~ network red/wide",
        "    - flow_log: refused", "    + flow_log: off",
        "    - mtu: 1400", "    + mtu: 1300",
        "    - subnets: 10.0.0.0/24, 10.1.0.0/24", "    + subnets: 10.0.0.0/24, 10.1.0.0/24, 10.2.0.0/24",
        "~ security_group red/web",
        "    - rules: in tcp 443; in tcp 8000-8080 from group db; out any",
        "    + rules: in tcp 80; in tcp 8000-8080 from group db; out any",
        "~ security_group red/db",
        "    - uses: VM train; VM train on network wide", "    + uses: VM train on network wide",
    ]  # fmt: skip
    assert cli("apply", "-f", str(file)).code == 0
    assert cli("plan", "-f", str(file)).out == AS_WANTED
    assert client.network("wide", "red")["flow_log"] == "off"
    assert "mtu=1300" in ovn.nbctl("--bare", "--columns=options", "find", "dhcp_options", 'cidr="10.2.0.0/24"')
    file.write_text(changed.replace("subnet: 10.0.0.0/24", "subnet: 10.9.0.0/24").replace("10.1.0.9", "10.1.0.10"))
    refused = cli("apply", "-f", str(file))
    assert (refused.code, "10.0.0.0/24" in refused.err, "addresses.wide is 10.1.0.9" in refused.err) == (5, True, True)
    assert client.network("wide", "red")["subnet"] == "10.0.0.0/24"
    file.write_text("schema_version: 1\nnetworks: [{name: wide, tenant: red, subnet: 10.88.1.0/24}]\n")
    assert "kind is ovn, wanted nat" in cli("apply", "-f", str(file)).err


def test_a_way_out_is_in_a_file_and_what_is_not_is_told(cli: Cli, client: Client, file: Path) -> None:
    wanted = WANTED.replace("kind: ovn\n", "kind: ovn\n    out: outside\n")
    file.write_text(wanted)
    assert cli("apply", "-f", str(file)).code == 0
    assert client.network("wide", "red")["out"] == "outside"
    exported = cli("export")
    assert ("out: outside" in exported.out, "name: outside" in exported.out) == (True, False)
    for word in ("provider networks, ", ": outside"):
        assert word in exported.err
    assert "outside" not in cli("export", "--tenant", "default").err
    file.write_text(exported.out)
    assert cli("plan", "-f", str(file)).out == AS_WANTED
    file.write_text(wanted.replace("out: outside", "out: elsewhere"))
    assert "out is outside, wanted elsewhere" in cli("apply", "-f", str(file)).err
    file.write_text("schema_version: 1\nnetworks: [{name: outside, subnet: 10.88.1.0/24}]\n")
    assert "kind is provider, wanted nat" in cli("apply", "-f", str(file)).err


LEADING = (
    WANTED.replace("kind: ovn\n", "kind: ovn\n    out: outside\n    peers: [side, blue/net]\n")
    .replace(
        "security_groups:\n",
        """\
  - {name: side, kind: ovn, tenant: red, subnet: 10.7.0.0/24}
  - {name: net, kind: ovn, tenant: blue, subnet: 10.8.0.0/24}
floating_addresses:
  - {address: 192.0.2.150, tenant: red, vm: train, vm_network: wide}
  - {address: 192.0.2.151, tenant: red, network: outside}
security_groups:
""",
    )
    .replace("  - name: red\n", "  - name: red\n  - name: blue\n")
)


def test_floating_addresses_and_joined_networks_are_in_a_file(
    cli: Cli, client: Client, file: Path, ovn: RealOvn
) -> None:
    file.write_text(LEADING)
    assert cli("apply", "-f", str(file)).code == 0
    assert cli("plan", "-f", str(file)).out == AS_WANTED
    peers = {(peer["tenant"], peer["name"], peer["state"]) for peer in client.network("wide", "red")["peers"]}
    assert peers == {("red", "side", "joined"), ("blue", "net", "joined")}
    led = {each["address"]: (each["vm"], each["vm_network"]) for each in client.floating_addresses()}
    assert led == {"192.0.2.150": ("train", "wide"), "192.0.2.151": (None, None)}
    assert "192.0.2.150" in ovn.nbctl("--bare", "--columns=external_ip", "list", "nat")
    exported = cli("export")
    assert "joined" not in exported.err
    client.detach_floating_address("192.0.2.150", "red")
    client.delete_floating_address("192.0.2.151", "red")
    client.describe_network("wide", {"leave": ["blue/net"]}, "red")
    file.write_text(exported.out)
    assert cli("diff", "-f", str(file)).out.splitlines() == [
        "+ floating_address red/192.0.2.151", "    + network: outside",
        "~ network blue/net", "    - peers: none", "    + peers: red/wide",
        "~ network red/wide", "    - peers: red/side", "    + peers: blue/net; red/side",
        "~ floating_address red/192.0.2.150", "    - vm: none", "    + vm: train on network wide",
    ]  # fmt: skip
    applied = cli("apply", "-f", str(file))
    assert "192.0.2.151 is nobody's any more, and not free yet" in applied.err
    assert {each["address"]: each["vm"] for each in client.floating_addresses()} == {"192.0.2.150": "train"}
    assert len(client.network("wide", "red")["peers"]) == 2
    mistakes = (
        ("vm: train, vm_network", "vm: trains, vm_network", "no VM is called 'trains'"),
        ("vm: train, vm_network", "vm_network", "vm_network is of a VM: vm"),
        ("192.0.2.150", "192.0.2.1500", "like 192.0.2.107"),
        ("peers: [side,", "peers: [sides,", "no network is called 'sides'"),
        ("blue/net]", "blue/Net]", "network name 'Net' is not allowed"),
    )
    for right, wrong, told in mistakes:
        file.write_text(LEADING.replace(right, wrong, 1))
        refused = cli("apply", "-f", str(file))
        assert refused.code in {2, 4}
        assert told in refused.err


@pytest.mark.parametrize(
    ("there", "wrong", "told"),
    [
        ("mtu: 1400", "mtu: 1", "an MTU of 1 cannot be"),
        ("flow_log: refused", "flow_log: some", "'off', 'refused', 'allowed' or 'all'"),
        ("10.1.0.0/24", "10.0.0.0/25", "overlaps"),
        ("kind: ovn", "kind: nat", "are of networks of kind ovn"),
        ("ntp_server:", "ntp:", "no DHCP option of ours is called 'ntp'"),
        ("in tcp 443", "in tcp 443 to 10.0.0.0/8", "cannot be in a rule"),
        ("in tcp 443", "up tcp", "cannot be in a rule"),
        ("group web", "group webs", "no security group is called 'webs'"),
        ("{vm: train}", "{vm: trains}", "no VM is called 'trains'"),
        ("{network: wide}", "{}", "a VM, a network or both"),
    ],
)
def test_a_mistake_is_told_before_anything_is_changed(
    cli: Cli, client: Client, file: Path, there: str, wrong: str, told: str
) -> None:
    file.write_text(WANTED.replace(there, wrong, 1))
    refused = cli("apply", "-f", str(file))
    assert refused.code in {2, 4}, refused
    assert told in refused.err
    assert [network["kind"] for network in client.networks()] == ["provider"]
