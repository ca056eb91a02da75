# SPDX-License-Identifier: Apache-2.0
"""Bridges and VLANs that the playbook of an operator keeps on a host, in the host's own kernel and over its reboot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab.conftest import LabHost, lab
from tests.lab.played import play

pytestmark = pytest.mark.lab
_FAR = """
ip netns add far; ip netns add vm
ip link add eno9 type veth peer name peer9 netns far
ip -n far link set peer9 up; ip -n far address add 203.0.113.2/24 dev peer9
ip -n far link add link peer9 name tagged9 type vlan id 100
ip -n far address add 198.51.100.2/24 dev tagged9; ip -n far link set tagged9 up"""
"""A card of the host's and another machine at its other end, with an address in VLAN 100 and one without a tag."""
_VM = """
ip link add tap9 type veth peer name card9 netns vm; ip link set tap9 master br-far up
ip -n vm address add 198.51.100.1/24 dev card9; ip -n vm address add 203.0.113.1/24 dev card9
ip -n vm link set card9 up"""
"""What a VM on the bridge is to the kernel."""
_WAYS = "ip -4 -brief address show scope global | grep -v ^virbr; ip route show default"
_PING = "ip netns exec vm ping -q -c 1 -W 20 {} >/dev/null && echo answers || echo silent"


def prepare(host: LabHost, directory: Path, *bridges: dict[str, object]) -> tuple[int, str]:
    """How many tasks changed something, and all that was said."""
    wanted = {"vgpuctl_host_bridges_wanted": list(bridges)}
    return play("prepare-host.yml", "vgpuctl_hosts", host, directory, wanted)


def test_vms_reach_their_vlan_over_a_bridge_that_boot_makes_again_and_the_host_keeps_its_addresses(
    bare: LabHost, tmp_path: Path
) -> None:
    lan = bare.run("ip -4 -brief address show to 10.77.0.0/24").split()[0]
    addresses = bare.run(_WAYS)
    bare.run(_FAR)
    over_far, over_lan = {"name": "br-far", "port": "eno9", "vlan": 100}, {"name": "br-lan", "port": lan, "vlan": 100}
    changed, said = prepare(bare, tmp_path, over_far, over_lan)
    assert changed == 1, said
    bare.run(_VM)
    assert bare.run(_PING.format("198.51.100.2")).strip() == "answers"
    assert bare.run(_PING.format("203.0.113.2")).strip() == "silent", "frames without a tag are not the VLAN's"
    assert prepare(bare, tmp_path, over_far, over_lan)[0] == 0
    assert bare.run(_WAYS) == addresses

    refused = prepare(bare, tmp_path, over_lan, {"name": "br-all", "port": lan})[1]
    assert f"[host.port_in_use] network card {lan} has 10.77." in refused
    assert prepare(bare, tmp_path, over_lan)[0] == 1
    lab("reboot", bare.name)
    made = json.loads(bare.run("ip -json -details link show"))
    there = {one["ifname"]: (one.get("master"), one.get("linkinfo", {}).get("info_data", {}).get("id")) for one in made}
    assert there["br-lan.100"] == ("br-lan", 100)
    assert "br-far" not in there
    assert prepare(bare, tmp_path, over_lan)[0] == 0
    assert bare.run(_WAYS) == addresses
    assert prepare(bare, tmp_path)[0] == 1
    bare.run("ip link delete br-lan.100; ip link delete br-lan")
