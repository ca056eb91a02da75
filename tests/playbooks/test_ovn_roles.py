# SPDX-License-Identifier: Apache-2.0
"""OVN's central servers and its hosts, set up by the real Ansible with Debian's own OVN, and asked by our server."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from orchestrator.adapters.state.clock import SystemClock
from orchestrator.adapters.state.ovn_authority import OvnAuthority
from tests.fakes.typed import COMMAND
from tests.playbooks.local_runs import ROOT
from tests.playbooks.ovn_machines import NETWORK, Machine, Machines, Played, into, machines

HOSTS = ("gpu-0", "gpu-1")
CENTRAL = ROOT / "playbooks/roles/vgpuctl_ovn_central/library/ovn_central.py"
FLEET = "groups:\n  - {name: gpu, count: 2, gpu_model: Tesla T4, gpus_per_host: 1, vcpus: 8, memory_gib: 64}\n"


@dataclass(frozen=True)
class OvnSite:
    """A server that is told of three central ones."""

    machines: Machines
    state: Path
    centrals: list[Machine]

    def vgpuctl(self, *words: str, code: int = 0) -> Any:
        done = subprocess.run(
            [COMMAND, *words, "-o", "json"], capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "VGPUCTL_STATE": str(self.state)},
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    def central(self, machine: Machine, **more: object) -> Played:
        addresses = {"vgpuctl_ovn_central": [one.address for one in self.centrals]}
        own = {"vgpuctl_ovn_central_address": machine.address}
        return machine.play("prepare-ovn-central.yml", "vgpuctl_ovn_central", {**addresses, **own, **more}, self.state)

    def host(self, machine: Machine, name: str, **more: object) -> Played:
        wanted = {
            "vgpuctl_ovn_central": [one.address for one in self.centrals], "vgpuctl_name": name,
            "vgpuctl_host_ovn_network": f"{NETWORK}.0/24", **more,
        }  # fmt: skip
        return machine.play("prepare-host.yml", "vgpuctl_hosts", wanted, self.state)


@contextmanager
def site() -> Iterator[OvnSite]:
    """In a short path: those of unix sockets have a bound."""
    with tempfile.TemporaryDirectory(prefix="ovn") as directory, machines(Path(directory)) as made:
        state, addresses = Path(directory) / "state", [f"{NETWORK}.{number}" for number in (2, 3, 4)]
        state.mkdir()
        fleet = Path(directory) / "fleet.yaml"
        fleet.write_text(FLEET)
        settings = {
            f"VGPUCTL_OVN_{database.upper()}": ",".join(f"ssl:{address}:{port}" for address in addresses)
            for database, port in (("northbound", 6641), ("southbound", 6642))
        }
        words = [*into(made), sys.executable, "-m", "orchestrator.server.serve", "--simulate", str(fleet)]
        with (Path(directory) / "serve.log").open("wb") as log:
            server = subprocess.Popen(
                words,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    **settings,
                    "VGPUCTL_STATE": str(state),
                    "VGPUCTL_OVN_ENCAPSULATION_NETWORK": f"{NETWORK}.0/24",
                },
            )
        until = time.monotonic() + 120
        while not (state / "serve.sock").exists():
            assert (server.poll(), time.monotonic() < until) == (None, True), (
                Path(directory) / "serve.log"
            ).read_text()
            time.sleep(0.1)
        try:
            yield OvnSite(made, state, [made.add(number) for number in (2, 3, 4)])
        finally:
            server.kill()
            server.wait()


def _settled(ovn: OvnSite, chassis: list[tuple[str, str]]) -> None:
    """The hosts have said who they are, and carried out what there is."""
    until = time.monotonic() + 60
    while True:
        driver = ovn.vgpuctl("network", "driver", "show")
        known = [(one["name"], ", ".join(one["encapsulations"])) for one in driver["chassis"]]
        if known == chassis and not driver["troubles"]:
            return
        assert time.monotonic() < until, json.dumps({"chassis": driver["chassis"], "troubles": driver["troubles"]})
        time.sleep(0.5)


def test_three_central_servers_and_two_hosts_are_set_up_and_go_on_when_one_is_lost() -> None:
    """One story: each server takes Ansible seconds to set up."""
    with site() as ovn:
        early = ovn.central(ovn.centrals[1])
        assert "[host.ovn_members] no other central server answers" in early.said
        for central in ovn.centrals:
            first = ovn.central(central)
            assert not first.failed, first.said
            key = central.root / "etc/ovn/vgpuctl/central/key.pem"
            assert (key.stat().st_mode & 0o777, key.read_text() in first.said) == (0o600, False)
        again = ovn.central(ovn.centrals[0])
        assert (again.failed, again.changed) == (False, 0), again.said
        members = ovn.vgpuctl("network", "driver", "show")["members"]
        assert [member["clustered"] and member["connected"] for member in members] == [True] * 6
        assert sum(member["leader"] for member in members) == 2

        hosts = [ovn.machines.add(number) for number in (11, 12)]
        _an_operator_brings_a_host_in(ovn, hosts[0], HOSTS[0])
        _a_server_brings_a_host_in_by_two_runs(ovn, hosts[1], HOSTS[1])
        _settled(ovn, [("gpu-0", f"geneve {NETWORK}.11"), ("gpu-1", f"geneve {NETWORK}.12")])
        assert ovn.vgpuctl("network", "driver", "check")["troubles"] == []
        _a_host_writes_about_itself_alone(ovn, hosts[0])
        _a_certificate_of_another_site_is_replaced_and_used(ovn, hosts[0])

        (leader,) = (member for member in members if member["leader"] and member["database"] == "southbound")
        lost = next(central for central in ovn.centrals if f":{central.address}:" in leader["address"])
        lost.run("ip", "link", "set", "eth0", "down")
        left = next(central for central in ovn.centrals if central is not lost)
        left.run("ovn-nbctl", "--no-leader-only", "--timeout=120", "--wait=hv", "ls-add", "theirs", limit_s=150)
        checked = ovn.vgpuctl("network", "driver", "check", code=3)["troubles"]
        assert [(each["code"], lost.address in each["subject"]) for each in checked] == [("ovn.unreachable", True)] * 2
        assert ovn.vgpuctl("network", "driver", "show")["foreign"] == 1


def _an_operator_brings_a_host_in(ovn: OvnSite, host: Machine, name: str) -> None:
    first, again = ovn.host(host, name), ovn.host(host, name)
    assert not first.failed, first.said
    assert (again.failed, again.changed) == (False, 0), again.said


def _a_server_brings_a_host_in_by_two_runs(ovn: OvnSite, host: Machine, name: str) -> None:
    """As AnsibleConfigurator does; first it only says what it would do."""
    wanted: dict[str, Any] = {
        "vgpuctl_host_ovn_central": [one.address for one in ovn.centrals], "vgpuctl_host_ovn_name": name,
        "vgpuctl_host_ovn_network": f"{NETWORK}.0/24",
    }  # fmt: skip
    checked = host.play("join-ovn.yml", "vgpuctl_hosts", wanted, ovn.state, "--check")
    assert (checked.failed, checked.changed > 0) == (False, True), checked.said
    assert not (host.root / "etc/ovn/vgpuctl").exists()
    for changes in (True, False):
        asking = {**wanted, "vgpuctl_ovn_certificate_request_only": True}
        asked = host.play("join-ovn.yml", "vgpuctl_hosts", asking, ovn.state)
        request = re.search(r'"request": "(.*?)"', asked.said)
        assert request is not None, asked.said
        (host.root / "request.pem").write_text(request[1].replace("\\n", "\n"))
        words = (str(host.root / "request.pem"), "--for", "host", "--name", name)
        signed = {**wanted, "vgpuctl_ovn_certificate_signed": ovn.vgpuctl("network", "driver", "sign", *words)}
        joined = host.play("join-ovn.yml", "vgpuctl_hosts", signed, ovn.state)
        assert (joined.failed, joined.changed > 0) == (False, changes), joined.said


def _a_host_writes_about_itself_alone(ovn: OvnSite, host: Machine) -> None:
    keys = host.root / "etc/ovn/vgpuctl/host"
    shown = ["-p", str(keys / "key.pem"), "-c", str(keys / "certificate.pem"), "-C", str(keys / "central.pem")]
    south, north = (",".join(f"ssl:{central.address}:{port}" for central in ovn.centrals) for port in (6642, 6641))
    assert "gpu-1" in host.run("/usr/bin/ovn-sbctl", f"--db={south}", *shown, "--timeout=20", "show")
    host.run("/usr/bin/ovn-sbctl", f"--db={south}", *shown, "--timeout=20", "chassis-del", "gpu-1", check=False)
    host.run("/usr/bin/ovn-nbctl", f"--db={north}", *shown, "--timeout=3", "ls-add", "mine", check=False)
    driver = ovn.vgpuctl("network", "driver", "show")
    assert ([one["name"] for one in driver["chassis"]], driver["foreign"]) == (["gpu-0", "gpu-1"], 0)


def _a_certificate_of_another_site_is_replaced_and_used(ovn: OvnSite, host: Machine) -> None:
    keys = host.root / "etc/ovn/vgpuctl/host"
    certificate, key, began = keys / "certificate.pem", keys / "key.pem", host.root / "began-ovn-host.service"
    request = host.run("openssl", "req", "-new", "-key", str(key), "-subj", f"/CN={HOSTS[0]}")
    theirs = OvnAuthority(Fernet.generate_key(), SystemClock()).sign("host", HOSTS[0], request).certificate
    certificate.write_text(theirs)
    secret, made, before = key.read_text(), key.stat().st_mtime, began.read_text()
    again = ovn.host(host, HOSTS[0])
    assert (again.failed, certificate.read_text() != theirs) == (False, True), again.said
    assert (key.read_text(), key.stat().st_mtime > made, began.read_text() != before) == (secret, True, True)
    shown = ["-p", str(key), "-c", str(certificate), "-C", str(keys / "central.pem")]
    south = f"ssl:{ovn.centrals[0].address}:6642"
    assert "gpu-1" in host.run("ovn-sbctl", f"--db={south}", "--no-leader-only", *shown, "--timeout=20", "show")


def test_one_machine_over_ipv6_is_central_server_and_host_with_a_certificate_for_each() -> None:
    with site() as ovn:
        both = ovn.machines.add(5)
        both.run("ip", "-6", "address", "add", "fd00::5/64", "dev", "eth0", "nodad")
        central = {"vgpuctl_ovn_central": ["fd00::5"], "vgpuctl_ovn_central_address": "fd00::5"}
        dotted = replace(both, name=f"{both.name}.example.com")
        for played in (ovn.central(both, **central), ovn.host(dotted, "", vgpuctl_ovn_central=["fd00::5"])):
            assert not played.failed, played.said
        keys = both.root / "etc/ovn/vgpuctl"
        for whose, authority in (("central", "central.pem"), ("host", "hosts.pem")):
            both.run(
                "openssl", "verify", "-CAfile", str(keys / whose / authority), str(keys / whose / "certificate.pem")
            )
        words = [f"--{option}={keys / 'central' / file}" for option, file in (
            ("private-key", "key.pem"), ("certificate", "certificate.pem"), ("ca-cert", "central.pem"),
        )]  # fmt: skip
        both.run("ovn-nbctl", "--db=ssl:[fd00::5]:6641", *words, "--timeout=20", "show")
        until = time.monotonic() + 30
        while f"Chassis {both.name}\n" not in both.run("ovn-sbctl", "--timeout=10", "show").replace('"', ""):
            assert time.monotonic() < until, both.logs()
            time.sleep(0.5)
        again = ovn.central(both, **central)
        assert (again.failed, again.changed) == (False, 0), again.said
        both.run("/usr/share/ovn/scripts/ovn-ctl", "stop_northd", "--no-monitor")  # as its unit is ended
        for database in ("ovn-nbctl", "ovn-sbctl"):
            both.run(database, "--timeout=10", "show")
        both.run("sh", "-c", 'kill -9 "$(cat "$OVN_RUNDIR/ovnsb_db.pid")"')
        dead = ovn.central(both, **central, vgpuctl_ovn_central_answer_timeout_s=3)
        assert dead.failed, dead.said
        silent = re.search(r"\[host.ovn_silent\] .*", dead.said)
        assert silent is not None, dead.said
        assert "; ovn-ovsdb-server-sb.service is failed (signal): 20" in silent[0], silent[0]


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="ovn") as directory, machines(Path(directory)) as made:
        yield made.add(11)


IN_NETWORK: dict[str, Any] = {"vgpuctl_ovn_central": [f"{NETWORK}.2"], "vgpuctl_host_ovn_network": f"{NETWORK}.0/24"}


@pytest.mark.parametrize(("variables", "said"), [
    ({**IN_NETWORK, "vgpuctl_host_ovn_network": "192.0.2.0/24"}, "[host.ovn_address] the host has no address in"),
    ({**IN_NETWORK, "vgpuctl_host_ovn_network": "everywhere"}, "[host.ovn_address] everywhere is no network"),
    ({**IN_NETWORK, "vgpuctl_host_ovn_mtu": 1500}, "eth0 of 10.99.0.11 passes 1500 bytes, and VMs' packets of 1500"),
])  # fmt: skip
def test_a_host_that_cannot_be_in_it_is_refused_before_anything_is_changed(
    machine: Machine, variables: dict[str, Any], said: str
) -> None:
    refused = machine.play("prepare-host.yml", "vgpuctl_hosts", variables, machine.root)
    assert (refused.failed, refused.changed, said in refused.said) == (True, 0, True), refused.said
    assert not (machine.root / "etc/ovn/vgpuctl").exists()


def test_a_host_of_another_ovn_is_left_to_it(machine: Machine) -> None:
    machine.run("sh", str(machine.root / "unpacks/openvswitch-switch"))
    machine.run("ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", "external-ids:ovn-remote=tcp:192.0.2.9:6642")
    before = machine.run("ovs-vsctl", "--no-wait", "list", "Open_vSwitch")
    refused = machine.play("prepare-host.yml", "vgpuctl_hosts", IN_NETWORK, machine.root)
    assert refused.failed
    assert "[host.foreign_ovn] the host is in the OVN of tcp:192.0.2.9:6642" in refused.said
    assert machine.run("ovs-vsctl", "--no-wait", "list", "Open_vSwitch") == before


def test_a_stopped_open_vswitch_may_be_another_ovn_and_is_left() -> None:
    with tempfile.TemporaryDirectory(prefix="ovn") as directory, machines(Path(directory)) as made:
        stopped = made.add(11)
        (stopped.root / "var/lib/openvswitch/conf.db").write_text("theirs")
        refused = stopped.play("prepare-host.yml", "vgpuctl_hosts", IN_NETWORK, stopped.root)
        assert (refused.failed, refused.changed, "[host.ovs_silent]" in refused.said) == (True, 0, True), refused.said
        written = [
            stopped.root / name
            for name in ("etc/default/ovn-host", "etc/openvswitch/system-id.conf", "etc/ovn/vgpuctl")
        ]
        assert not any(path.exists() for path in written)


LONE = '# By vgpuctl.\nOVN_CTL_OPTS="--ovn-nb-db-ssl-key=key"\n'
BEGAN = '# By vgpuctl.\nOVN_CTL_OPTS="--db-nb-cluster-local-addr=127.9.9.1"\n'
REMOTE = "--db-nb-cluster-remote-addr=127.9.9.2"


@pytest.mark.parametrize(("known", "databases", "answered", "refused", "joins"), [
    ("", False, 6641, "127.9.9.2 has databases of its own", False),
    (LONE, True, 6643, "127.9.9.1 has databases of its own", False),
    (LONE, True, None, None, False),
    ("", False, 6643, None, True),
    ("", True, 6643, None, True),
    (BEGAN, True, 6643, None, False),
    (BEGAN, False, 6643, None, True),
], ids=["a lone one is another", "a lone one joins", "a lone one begins", "a new one", "what the package began",
        "a member", "a member that lost its databases"])  # fmt: skip
def test_a_central_server_joins_whoever_answers_and_never_loses_databases(
    tmp_path: Path, known: str, databases: bool, answered: int | None, refused: str | None, joins: bool
) -> None:
    options = tmp_path / "etc/default/ovn-central"
    for directory in ("etc/default", "etc/ovn/vgpuctl/central", "var/lib/ovn"):
        (tmp_path / directory).mkdir(parents=True)
    if known:
        options.write_text(known)
    for which in ("nb", "sb") if databases else ():
        (tmp_path / f"var/lib/ovn/ovn{which}_db.db").touch()
    wanted = {"addresses": [f"127.9.9.{number}" for number in (1, 2, 3)], "own": "127.9.9.1", "root": str(tmp_path)}
    script = (
        "import runpy, sys\nfrom ansible.module_utils.testing import patch_module_args\n"
        f"with patch_module_args({wanted!r}): runpy.run_path({str(CENTRAL)!r}, run_name='__main__')"
    )
    with socket.create_server(("127.9.9.2", answered)) if answered else nullcontext():
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    answer = json.loads(done.stdout)
    assert (answer.get("msg") or "").startswith(f"[host.ovn_members] {refused}" if refused else ""), answer
    assert bool(answer.get("failed")) is bool(refused)
    assert (REMOTE in options.read_text() if options.exists() else False) is joins


@pytest.mark.parametrize(("addresses", "said"), [
    (["192.0.2.1", f"{NETWORK}.11"], "[host.ovn_members] 2 central servers, and there may be 1, 3 or 5"),
    (["192.0.2.1"], "[host.ovn_members] 10.99.0.11 is none of the central servers"),
    ([f"{NETWORK}.11"], "[host.foreign_ovn]"),
])  # fmt: skip
def test_central_servers_that_cannot_be_and_another_ovn_are_left(
    machine: Machine, addresses: list[str], said: str
) -> None:
    theirs = machine.root / "var/lib/ovn/ovnnb_db.db"
    theirs.write_text("theirs")
    variables = {"vgpuctl_ovn_central": addresses, "vgpuctl_ovn_central_address": machine.address}
    refused = machine.play("prepare-ovn-central.yml", "vgpuctl_ovn_central", variables, machine.root)
    assert (refused.failed, refused.changed, said in refused.said) == (True, 0, True), refused.said
    assert (theirs.read_text(), (machine.root / "etc/default/ovn-central").exists()) == ("theirs", False)
