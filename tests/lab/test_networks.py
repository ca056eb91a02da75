# SPDX-License-Identifier: Apache-2.0
"""Networks over two hosts with real guests: OVN from Debian's packages, set up by our playbooks, in the hosts' kernels.
Two VMs of a tenant on two hosts, and one of another tenant in the same range; each test goes on from the last."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from tests.lab.attacks import COMPILED, SOURCE, Card, attacks, honest
from tests.lab.ovn_hosts import FIRST, NAMES, OUTSIDE, PHYSICAL, ROUTER_OUTSIDE, SECOND, Guest, Site, ovn_hosts

pytestmark = pytest.mark.lab

_SUBNET, _ROUTER, _IPV6 = "10.0.0.0/24", "10.0.0.1", "fd00:77::/64"
_A, _B = "10.0.0.10", "10.0.0.20"
_PROGRAM: Final = "/run/frames"
_DHCPV6: Final = (
    "for off in 1 0; do echo $off >/proc/sys/net/ipv6/conf/eth0/disable_ipv6; done; sleep 2; "
    "printf '#!/bin/sh\\n[ -z \"$ipv6\" ] || ip -6 address replace $ipv6/128 dev eth0\\n' >/six; chmod +x /six; "
    "udhcpc6 -i eth0 -n -q -t 5 -T 2 -s /six >/dev/null 2>&1"
)
"""The guest's own script for IPv4 takes its link-local address from it, which comes back here."""
_FEW: Final = 3
"""Pings that may be lost, of one each second."""


@dataclass(frozen=True)
class Three:
    """``a`` and ``b`` are one tenant's; ``other`` has b's address on a network of its own tenant."""

    site: Site
    a: Guest
    b: Guest
    other: Guest

    def card(self, guest: Guest) -> Card:
        """As libvirt gave it to the VM, and as the VM is shown."""
        mac = guest.host().run(f"virsh domiflist {guest.vm} | awk '/:/ {{print $5}}'").strip()
        return Card(mac, guest.shown()["cards"][0]["address"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ovn_hosts(tmp_path_factory.mktemp("site")) as one:
        yield one


@pytest.fixture(scope="module")
def three(site: Site) -> Three:
    product, first = site.product, site.hosts[FIRST]
    product.ok("tenant", "create", "red")
    way = ("--subnet", OUTSIDE, "--gateway", ROUTER_OUTSIDE, "--range", "192.0.2.10-192.0.2.20")
    product.ok("network", "add", "outside", "--provider", PHYSICAL, *way)
    for tenant in ("default", "red"):  # on one GPU: what is shown is the network's doing
        product.ok("tenant", "set", tenant, "--isolation", "none")
        out = ("--out", "outside") if tenant == "default" else ()
        subnets = ("--subnet", _SUBNET, *(("--subnet", _IPV6) if out else ()))
        product.ok("network", "create", "blue", "--kind", "ovn", *subnets, "--tenant", tenant, *out)
    first.send(SOURCE, f"{_PROGRAM}.c")
    program = first.run(f"{COMPILED.format(program=_PROGRAM)} && base64 -w0 {_PROGRAM}")
    assert base64.b64decode(program)[:4] == b"\x7fELF"
    seed = site.state / "seed"
    seed.write_text(f"#cloud-config\nwrite_files: [{{path: /frames, encoding: b64, content: {program}}}]\n")
    wanted = (("a", FIRST, _A, "default"), ("b", SECOND, _B, "default"), ("other", SECOND, _B, "red"))
    with ThreadPoolExecutor(len(wanted)) as pool:
        a, b, other = pool.map(
            lambda each: site.create(
                each[0], each[1], "--network", f"blue,ip={each[2]}", "--tenant", each[3], "--user-data", str(seed)
            ),
            wanted,
        )
    for guest in (a, b):
        guest.says("grep -o 'f0VMR[A-Za-z0-9+/=]*' /seed/user-data | base64 -d >/frames; chmod +x /frames")
    return Three(site, a, b, other)


def test_playbooks_have_put_both_hosts_into_one_ovn_and_change_nothing_again(site: Site) -> None:
    driver = site.product.json("network", "driver", "show")
    assert [each["name"] for each in driver["chassis"]] == list(NAMES)
    assert _troubles(site) == {}
    for name in NAMES:
        assert _ovn_of(site, name)["state"] == "ok"
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(site.set_up_host, NAMES)) == [0, 0]
    assert site.set_up_central() == 0


def _troubles(site: Site) -> dict[str, str]:
    """Of OVN: code by what has it."""
    checked = site.product.run("network", "driver", "check", "-o", "json")
    troubles = {each["subject"]: each["code"] for each in json.loads(checked.out)["troubles"]}
    assert checked.code == (3 if troubles else 0)
    return troubles


def _becomes(holds: Callable[[], bool], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(1)


def _ovn_of(site: Site, host: str) -> dict[str, str]:
    """The row of ``host check``."""
    checked = json.loads(site.product.run("host", "check", host, "-o", "json").out)
    return next(row for row in checked["requirements"] if row["name"] == "OVN")


def test_a_tenants_vms_meet_over_hosts_by_name_and_nobody_elses(three: Three) -> None:
    a, b, other = three.a, three.b, three.other
    assert a.reaches("b")
    assert b.reaches("a.blue.default.internal")
    assert f"{_B} " in a.says("ip neigh")
    assert three.card(b).mac in a.says("ip neigh")
    assert f"inet {_A}/24" in a.says("ip -4 address show dev eth0")
    assert not other.reaches(_A)
    assert other.reaches("other.blue.red.internal")  # its network has IPv4 alone


def test_a_guest_is_nobody_else_there(three: Three) -> None:
    a, b = three.a, three.b
    mine, its = three.card(a), three.card(b)
    b.says("/frames watch eth0 >/seen 2>&1 & sleep 1")
    frames = [honest("hello", mine, its), *attacks(mine, its, _ROUTER).values(), honest("afterwards", mine, its)]
    for start in range(0, len(frames), 3):
        a.says(f"/frames send eth0 {' '.join(frame.hex() for frame in frames[start : start + 3])}")
    assert set(b.says("sleep 1; cat /seen").split()) == {"hello", "afterwards"}


def test_rules_open_and_close_and_explain_says_what_packets_do(three: Three) -> None:
    product, a, b = three.site.product, three.a, three.b
    for guest in (a, b):
        guest.says("(while true; do hostname | nc -l -p 80; done >/dev/null 2>&1 &)")
    assert a.says(_ASKS) == "b\n"
    assert _explained(three)
    product.ok("security-group", "create", "web")
    with _web_applied(three):
        a.says(f'while [ -n "$({_ASKS} 2>/dev/null)" ]; do :; done')
        assert not _explained(three)
        product.ok("security-group", "rule", "add", "web", "in", "tcp", "--port", "80", "--range", f"{_A}/32")
        a.says(f'until [ -n "$({_ASKS} 2>/dev/null)" ]; do :; done')
        assert _explained(three)
        assert not a.reaches("b", 1), "a ping is no TCP"
    a.says(_UNTIL_B_ANSWERS)


@contextmanager
def _web_applied(three: Three) -> Iterator[None]:
    """To b, until here; other tests find it without."""
    product = three.site.product
    product.ok("security-group", "apply", "web", "--vm", "b")
    try:
        yield
    finally:
        product.ok("security-group", "withdraw", "web", "--vm", "b")


_ASKS: Final = f"nc -w 2 {_B} 80 </dev/null"
_UNTIL_B_ANSWERS: Final = f"until ping -q -c 1 -W 1 {_B} >/dev/null; do :; done"


def _explained(three: Three) -> bool:
    return bool(three.site.product.json("network", "explain", "a", "b", "80")["arrives"])


def test_guests_have_ipv6_and_rules_are_kept_there(three: Three) -> None:
    with _addressed_by_ipv6(three.a, three.b):
        assert three.a.reaches("-6 b")
        with _web_applied(three):
            assert not three.a.reaches("-6 b", 2)
        assert three.a.reaches("-6 b")


@contextmanager
def _addressed_by_ipv6(*guests: Guest) -> Iterator[None]:
    """Until here: of a name with two addresses a guest asks for the one by IPv6, and b has none once it was stopped."""
    try:
        for guest in guests:
            guest.says(_DHCPV6)
            assert f"inet6 {guest.shown()['cards'][0]['address6']}/128" in guest.says("ip -6 address show dev eth0")
        yield
    finally:
        for guest in guests:
            guest.says("ip -6 address flush dev eth0 scope global")


def test_a_floating_address_goes_to_another_vm_under_traffic(three: Three) -> None:
    product, first = three.site.product, three.site.hosts[FIRST]
    rule = ("default", "in", "tcp", "--port", "80", "--range", f"{ROUTER_OUTSIDE}/32")
    product.ok("security-group", "rule", "add", *rule)
    address = product.json("network", "address", "create")["address"]
    asks = f"timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/80; cat <&3'"
    assert first.run(f"{asks} || true") == ""
    for vm in ("a", "b"):
        begun = time.monotonic()
        product.ok("network", "address", "attach", address, vm)
        first.run(f'for n in $(seq 60); do [ "$({asks})" = {vm} ] && exit; sleep 0.5; done; exit 1', limit_s=180)
        print(f"{address} led to {vm} after {time.monotonic() - begun:.1f} s")
    assert three.b.reaches(ROUTER_OUTSIDE)


def _pinging(three: Three, whom: str) -> None:
    three.a.says(f"kill $(cat /pinging) 2>/dev/null; ping -c 600 {whom} >/pinged 2>&1 & echo $! >/pinging")


def _lost(three: Three) -> int:
    """Since it began."""
    said = three.a.says("kill -INT $(cat /pinging); sleep 1; tail -n 3 /pinged")
    counted = re.search(r"(\d+) packets transmitted, (\d+) packets received", said)
    assert counted, said
    return int(counted[1]) - int(counted[2])


def _stood_still_s(three: Three) -> float:
    """By the last live move, as it is told. How long that is depends on what else the hosts' machine does."""
    moves = (each for each in three.site.product.json("operation", "list") if each["kind"] == "move_running_vm")
    told = next(step["message"] for step in next(moves)["steps"] if step["name"] == "go_on.1")
    return float(re.findall(r"stood still for ([0-9.]+) s", told)[0])


def test_an_address_stays_over_a_stop_and_a_move_of_a_vm_that_runs(three: Three) -> None:
    product, a, b = three.site.product, three.a, three.b
    product.ok("stop-vm", "b")
    product.ok("start-vm", "b")
    b.is_up(boots=2)
    assert f"inet {_B}/24" in b.says("ip -4 address show dev eth0")
    assert a.reaches("b")
    _pinging(three, _B)
    product.run("doctor")
    product.ok("vm", "move", "b", "--to", FIRST, limit_s=600)
    assert b.shown()["host"] == FIRST
    assert _lost(three) <= _stood_still_s(three) + _FEW
    assert a.reaches("b")
    for host in three.site.hosts.values():  # nothing is left of a start or a move
        of_vms = "for vm in $(virsh list --name); do virsh domiflist $vm | awk '/br-int/ {print $1}'; done | sort"
        assert host.run("ovs-vsctl list-ports br-int | grep ^vnet | sort || true") == host.run(of_vms)


def test_without_central_servers_vms_go_on_and_new_ones_say_so(three: Three) -> None:
    site, product = three.site, three.site.product
    _pinging(three, _B)
    site.hosts[FIRST].run("systemctl kill --signal KILL 'ovn-ovsdb-server-*' ovn-northd; systemctl stop ovn-central")
    assert set(_troubles(site).values()) == {"ovn.unreachable"}
    _becomes(lambda: "no answer of" in _ovn_of(site, SECOND)["found"])
    words = ("create-vm", "late", "--profile", "small", "--image", "guest", "--vcpus", "1", "--memory", "192MiB")
    refused = product.run(*words, "--network", "blue").err
    assert "ovn.unreachable" in refused or "the host is not in OVN" in refused
    assert "late" not in str(product.json("list-vms"))
    site.central_does("start")
    _becomes(lambda: _troubles(site) == {}, 120)
    assert _lost(three) <= _FEW
    assert three.a.reaches("b")


def test_a_northbound_that_was_lost_is_filled_again_under_traffic(three: Three) -> None:
    site, first = three.site, three.site.hosts[FIRST]
    _pinging(three, _B)
    first.run("systemctl stop ovn-northd ovn-ovsdb-server-nb; rm /var/lib/ovn/ovnnb_db.db; "
              "systemctl start ovn-ovsdb-server-nb")  # fmt: skip
    site.set_up_central()
    listed = "ovn-nbctl --bare --columns=external_ids list Logical_Switch_Port || true"
    _becomes(lambda: "vgpuctl-id" in first.run(listed), 150)
    first.run("systemctl start ovn-northd; ovn-nbctl --wait=hv --timeout=60 sync")
    assert _lost(three) <= _FEW
    assert three.a.reaches("b")


def test_a_host_that_was_cut_off_is_back(three: Three) -> None:
    second = three.site.hosts[SECOND]
    if three.b.shown()["host"] != SECOND:
        three.site.product.ok("vm", "move", "b", "--to", SECOND, limit_s=600)
    lan = second.run("ip -4 -brief address show to 10.77.0.0/24").split()[0]
    second.run(f"ip link set {lan} down")
    assert not three.a.reaches("b", 2)
    assert three.b.shown()["state"] == "running"
    _becomes(lambda: "no answer of" in _ovn_of(three.site, SECOND)["found"])
    _becomes(lambda: _troubles(three.site) == {SECOND: "ovn.host_cut_off"})
    second.run(f"ip link set {lan} up")
    three.a.says(_UNTIL_B_ANSWERS)
