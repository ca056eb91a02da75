# SPDX-License-Identifier: Apache-2.0
"""Bridges of a host with the real Ansible and the kernel's own links, in a network namespace of the test's.

Kernels of test machines may lack VLANs: a plain link stands in for one, whose command is kept.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.playbooks.guest_with_packages import PackagedGuest
from tests.playbooks.prepared_host import Prepared, prepare

_SYSTEMCTL = (
    'echo "$*" >> "$GUEST/told"; case $1 in\n'
    'is-enabled) [ -e "$GUEST/enabled/$3" ] ;;\nenable) touch "$GUEST/enabled/$2" ;;\n'
    'disable) rm "$GUEST/enabled/$2" ;;\ndaemon-reload) ;;\n*) exit 9 ;;\nesac'
)
_IP = (
    'case "$*" in *"type vlan"*) echo "$*" >> "$GUEST/tagged"; set -- link add "$6" type ifb ;; esac\n'
    'exec {into} "$(PATH=/usr/sbin:/sbin:/usr/bin:/bin command -v ip)" "$@"'
)
UNITS = "etc/systemd/system"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[PackagedGuest]:
    """It has a card ``eno1`` by which it is reached, and a card ``eno2`` without an address.

    ``eno1`` makes no IPv6 address for itself: that would change by itself a moment later, from tentative to valid."""
    holder = subprocess.Popen(
        ["unshare", "--map-root-user", "--net", "sh", "-c", "echo there; exec sleep 600"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "there\n"
        into = f"nsenter --target {holder.pid} --user --net --preserve-credentials"
        made = PackagedGuest.made(tmp_path, ip=_IP.format(into=into), systemctl=_SYSTEMCTL)
        (tmp_path / UNITS).mkdir(parents=True)
        (tmp_path / "enabled").mkdir()
        for words in (
            "link add eno1 type ifb", "link add eno2 type ifb", "address add 192.0.2.11/24 dev eno1",
            "link set eno1 addrgenmode none", "link set eno1 up", "route add default via 192.0.2.1 dev eno1",
        ):  # fmt: skip
            ip(made, *words.split())
        yield made
    finally:
        holder.kill()
        holder.wait()


def ip(host: PackagedGuest, *words: str) -> str:
    return subprocess.run(
        [host.root / "bin/ip", *words], capture_output=True, text=True, check=True, timeout=60,
        env={"GUEST": str(host.root), "PATH": "/usr/sbin:/sbin:/usr/bin:/bin"},
    ).stdout  # fmt: skip


def links(host: PackagedGuest) -> dict[str, dict[str, Any]]:
    return {link["ifname"]: link for link in json.loads(ip(host, "-json", "-details", "address", "show"))}


def with_bridges(host: PackagedGuest, *bridges: Mapping[str, object], flags: tuple[str, ...] = ()) -> Prepared:
    return prepare(host, {"vgpuctl_host_bridges_wanted": list(bridges)}, flags)


TAGGED = {"name": "br-train", "port": "eno1", "vlan": 100}
WHOLE = {"name": "br-data", "port": "eno2"}


def test_bridges_are_made_and_the_way_to_the_host_stays_and_a_second_run_changes_nothing(host: PackagedGuest) -> None:
    before, cards = ip(host, "route"), set(links(host))
    tried = with_bridges(host, TAGGED, WHOLE, flags=("--check",))
    assert (tried.failed, tried.changed, set(links(host))) == (False, 1, cards), tried.said
    assert not any((host.root / UNITS).iterdir())
    first = with_bridges(host, TAGGED, WHOLE)
    assert (first.failed, first.changed) == (False, 1), first.said
    there = links(host)
    assert there["br-train.100"]["master"] == "br-train"
    assert (host.root / "tagged").read_text() == "link add link eno1 name br-train.100 type vlan id 100\n"
    assert there["eno2"]["master"] == "br-data"
    assert all("UP" in there[name]["flags"] for name in ("br-train", "br-train.100", "br-data", "eno2"))
    assert not any(there[name]["addr_info"] for name in ("br-train", "br-train.100", "br-data")), (
        "no address of its own"
    )
    assert ip(host, "route") == before
    again = with_bridges(host, TAGGED, WHOLE)
    assert (again.failed, again.changed) == (False, 0), again.said


def test_what_a_unit_does_at_the_next_boot_is_what_was_done_now(host: PackagedGuest) -> None:
    assert not with_bridges(host, TAGGED).failed
    made = {name: (link.get("master"), "UP" in link["flags"]) for name, link in links(host).items()}
    for name in ("br-train", "br-train.100"):
        ip(host, "link", "delete", name)
    unit = (host.root / UNITS / "vgpuctl-bridge-br-train.service").read_text()
    for line in unit.splitlines():
        if line.startswith("ExecStart="):
            ip(host, *line.split()[1:])
    assert {name: (link.get("master"), "UP" in link["flags"]) for name, link in links(host).items()} == made
    again = with_bridges(host, TAGGED)
    assert (again.failed, again.changed) == (False, 0), again.said


def test_a_bridge_that_is_no_longer_listed_is_not_made_at_the_next_boot(host: PackagedGuest) -> None:
    assert not with_bridges(host, TAGGED, WHOLE).failed
    assert with_bridges(host, WHOLE).changed == 1
    assert [path.name for path in (host.root / UNITS).iterdir()] == ["vgpuctl-bridge-br-data.service"]
    assert "br-train" in links(host), "VMs may use it"


def test_what_was_begun_is_taken_back_when_the_kernel_refuses_the_rest(host: PackagedGuest) -> None:
    ip(host, "link", "add", "loop", "type", "bridge")
    before = set(links(host))
    refused = with_bridges(host, TAGGED, {"name": "br-loop", "port": "loop"})
    assert refused.failed
    assert "[host.bridge_refused] ip link set loop master br-loop" in refused.said
    assert set(links(host)) == before
    assert not any((host.root / UNITS).iterdir())


@pytest.mark.parametrize("way", ["-6 route add default dev eno2", "route add 198.51.100.0/24 dev eno2"])
def test_a_card_by_which_the_host_sends_is_never_a_port(host: PackagedGuest, way: str) -> None:
    """Its route would stay and its frames would go to the bridge."""
    ip(host, "link", "set", "eno2", "up")
    ip(host, *way.split())
    refused = with_bridges(host, WHOLE)
    assert refused.failed
    assert "[host.port_in_use] the host sends by network card eno2 to" in refused.said, refused.said
    assert {"lo", "eno1", "eno2"} == set(links(host))
    assert not with_bridges(host, {**WHOLE, "vlan": 7}).failed, "tagged frames are taken out before"


_TAKES_ADDRESS = """case "$*" in "link set br-train up")
{into} "$(PATH=/usr/sbin:/sbin:/usr/bin:/bin command -v ip)" address flush dev eno1 ;; esac
"""
"""As a network manager does that takes the new link for its business."""


def test_an_address_that_went_with_a_change_returns_with_the_ways_out_by_it(host: PackagedGuest) -> None:
    ip(host, "address", "add", "198.51.100.7/24", "dev", "eno1", "valid_lft", "8000", "preferred_lft", "4000")
    ip(host, "route", "append", "default", "via", "198.51.100.1", "metric", "77", "src", "198.51.100.7")

    def seen() -> dict[str, list[tuple[str, int, bool]]]:
        return {
            name: [(one["local"], one["prefixlen"], one["valid_life_time"] > 8000) for one in link["addr_info"]
                   if one["scope"] != "link"]
            for name, link in links(host).items()
        }  # fmt: skip

    before = (seen(), sorted(ip(host, "route").splitlines()))
    wrapped = host.root / "bin/ip"
    mild = wrapped.read_text()
    into = mild.partition("exec ")[2].partition(' "$(')[0]
    wrapped.write_text(mild.replace("exec ", _TAKES_ADDRESS.format(into=into) + "exec ", 1))
    ended = with_bridges(host, TAGGED)
    wrapped.write_text(mild)
    assert ended.failed
    assert "[host.network_lost] the host would have lost address 192.0.2.11 on eno1" in ended.said, ended.said
    assert (seen(), sorted(ip(host, "route").splitlines())) == before
    assert not any((host.root / UNITS).iterdir())


@pytest.mark.parametrize(("bridge", "said"), [
    ({"name": "br-x", "port": "eno1"}, "[host.port_in_use] network card eno1 has 192.0.2.11"),
    ({"name": "br-x", "port": "eno9"}, "[host.no_such_port]"),
    ({"name": "br-x", "port": "eno2", "vlan": 5000}, "[host.bridge_invalid]"),
    ({"name": "br-much-too-long", "port": "eno2"}, "[host.bridge_invalid]"),
    ({"name": "virbr0", "port": "eno2"}, "[host.bridge_invalid]"),
    ({"name": "eno2", "port": "eno1", "vlan": 3}, "[host.bridge_invalid] eno2 is there and is no bridge"),
    ({"name": "br x; reboot", "port": "eno2"}, "[host.bridge_invalid]"),
    ({"port": "eno2"}, "missing required arguments: name"),
])  # fmt: skip
def test_what_cannot_be_is_refused_and_nothing_is_changed(
    host: PackagedGuest, bridge: dict[str, object], said: str
) -> None:
    before = links(host)
    refused = with_bridges(host, WHOLE, bridge)
    assert refused.failed
    assert said in refused.said, refused.said
    assert links(host) == before
    assert not any((host.root / UNITS).iterdir())
