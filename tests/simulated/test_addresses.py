# SPDX-License-Identifier: Apache-2.0
"""Addresses of VMs on hosts in memory, as a DHCP server that keeps its leases gives them out."""

from __future__ import annotations

import os
import subprocess
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.core.units import GIB
from tests.fakes.running import running_server
from tests.fakes.typed import COMMAND

FLEET = "groups:\n  - {name: l40s, count: 1, gpu_model: L40S, gpus_per_host: 1, vcpus: 16, memory_gib: 64}\n"


def test_a_vm_that_was_stopped_comes_back_with_its_address_and_nobody_is_behind_it(tmp_path: Path) -> None:
    file, state = tmp_path / "fleet.yaml", tmp_path / "state"
    file.write_text(FLEET)
    with running_server(state, "--simulate", str(file), module="orchestrator.server.serve"):
        connection = connect_running(state)
        assert connection is not None
        client = Client(connection)
        _create(client, "a")
        before = _address(client, "a")
        subnet = IPv4Network(client.network("default", "default")["subnet"])
        assert IPv4Address(before) in list(subnet.hosts())[1:], "the first one is the host's"
        client.wait(client.stop_vm("a", "default"))
        _create(client, "b")
        client.wait(client.start_vm("a", "default"))
        assert _address(client, "a") == before
        assert _address(client, "b") != before
        client.wait(client.restart_vm("a", "default"))
        assert _address(client, "a") == before
        for words in (["ssh", "a", "--", "true"], ["vm", "proxy", "a", "--port", "22"]):
            done = subprocess.run(
                [COMMAND, *words], env={**os.environ, "VGPUCTL_STATE": str(state)}, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode != 0
            assert done.stderr.startswith("error: a simulated VM has no guest that answers on a port [vm.simulated]\n")
            assert "hint: only its console is there: 'vgpuctl console a" in done.stderr


def _create(client: Client, name: str) -> None:
    wish = {"name": name, "tenant": "default", "profile": "NVIDIA L40S-12Q", "image": "demo"}
    client.wait(client.create_vm({**wish, "vcpus": 1, "disk_bytes": GIB, "memory_mib": 1024}))


def _address(client: Client, name: str) -> str:
    client.observe_findings(None)
    (address,) = client.vm(name, "default")["addresses"]
    return str(address)
