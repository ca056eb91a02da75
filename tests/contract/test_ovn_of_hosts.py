# SPDX-License-Identifier: Apache-2.0
"""What an agent reads of its host's Open vSwitch and ovn-controller, both of which run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from orchestrator.agent.open_vswitch import with_ovn
from orchestrator.agent.paths import Paths
from orchestrator.core.hosts.bridges import Bridge, outside_ovn
from tests.fakes.ovn_chassis import OvnChassis, ovn_chassis
from tests.fakes.ovn_databases import RealOvn, real_ovn
from tests.fakes.several import until

BR_INT = Bridge(name="br-int", kind="openvswitch")


def test_an_agent_tells_what_ovn_calls_its_host_and_whether_it_is_at_work(tmp_path: Path) -> None:
    paths = Paths(root=tmp_path, storage=tmp_path)
    (tmp_path / "run").mkdir()
    for name in ("openvswitch", "ovn"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "host")
    assert with_ovn(paths, BR_INT).problem == "Open vSwitch does not answer"
    (tmp_path / "central").mkdir()
    with real_ovn(tmp_path / "central") as ovn, ovn_chassis(tmp_path / "host", ovn, "gpu-1") as chassis:
        until(lambda: with_ovn(paths, BR_INT).problem is None)
        told = (with_ovn(paths, BR_INT),)
        assert told[0].chassis[0] == "gpu-1"
        assert (outside_ovn(told, "gpu-1"), outside_ovn(told, "gpu-2")) == (None, "OVN calls it gpu-1")
        _tunnels_and_cards(ovn, paths, chassis)
        ovn.end("southbound")
        until(lambda: with_ovn(paths, BR_INT).problem == "ovn-controller has no connection to OVN's southbound")
        assert outside_ovn((with_ovn(paths, BR_INT),), "gpu-1") is not None
        process = int((tmp_path / "host/ovn-controller.pid").read_text())
        (tmp_path / f"host/ovn-controller.{process}.ctl").unlink()
        assert with_ovn(paths, BR_INT).problem == "ovn-controller does not answer"
    assert with_ovn(paths, BR_INT).problem == "Open vSwitch does not answer"


def _tunnels_and_cards(ovn: RealOvn, paths: Paths, chassis: OvnChassis) -> None:
    """OVN makes a tunnel to each other chassis, and sets up what its northbound knows."""
    ovn.sbctl("chassis-add", "gpu-2", "geneve", "192.0.2.2")
    chassis.plug("a-card", "52:54:00:00:00:01", "10.0.0.5/24")
    until(lambda: _interface(chassis, "options:remote_ip=192.0.2.2"))
    told = with_ovn(paths, BR_INT)
    assert (told.silent_tunnels, told.waiting_ports) == ((), ("a-card",))
    ovn.nbctl("ls-add", "net", "--", "lsp-add", "net", "a-card")
    until(lambda: with_ovn(paths, BR_INT).waiting_ports == ())


def _interface(chassis: OvnChassis, where: str) -> str:
    words = ["ovs-vsctl", f"--db=unix:{chassis.root}/db.sock", "--bare", "--columns=name", "find", "interface", where]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
