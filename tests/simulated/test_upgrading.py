# SPDX-License-Identifier: Apache-2.0
"""A rolling upgrade by the command line, against a server of simulated hosts that is killed on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client.client import Client
from orchestrator.client.content import open_content
from orchestrator.core.units import GIB
from tests.fakes.driver_files import Signer, run_file
from tests.fakes.simulated import serving

OLD, NEW = "580.65.05", "580.95.02"
SHAPE = f'gpu_model: Tesla T4, gpus_per_host: 1, vcpus: 32, memory_gib: 128, driver: "{OLD}"'
FLEET = f"""\
groups:
  - {{name: a, count: 3, {SHAPE}}}
  - {{name: bad, count: 1, {SHAPE}, refuses_drivers: ["{NEW}"]}}
"""


def vgpuctl(state: Path, *words: str) -> tuple[int, Any, str]:
    """Exit code, what was answered, what was said beside it."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("vgpuctl")), *words, "-o", "json"],
        env={**os.environ, "VGPUCTL_STATE": str(state)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def bring(client: Client, directory: Path, version: str) -> None:
    signer, path = Signer(), directory / f"{version}.run"
    path.write_bytes(run_file(f"NVIDIA-Linux-x86_64-{version}-vgpu-kvm"))
    signature = signer.sign(path.read_bytes())
    with open_content(path) as content:
        client.upload_driver_bundle(content, signature, signer.key)


def prepare(client: Client, directory: Path, **placed: str) -> None:
    """Both bundles and a VM that runs."""
    for version in (OLD, NEW):
        bring(client, directory, version)
    wish = {"name": "train", "profile": "GRID T4-4Q", "image": "demo", "vcpus": 2, "memory_mib": 1024}
    client.wait(client.create_vm({**wish, "disk_bytes": GIB, **placed}))


def await_progress(client: Client) -> None:
    """Of each operation that is under way, some seconds at most."""
    for operation in client.operations(active=True, limit=9):
        client.operation(operation["id"], wait_s=5, since=operation["revision"])


@pytest.mark.fault("F115")
def test_an_upgrade_outlives_its_server_and_ends_with_every_host_as_it_should_be(tmp_path: Path) -> None:
    state, fleet = tmp_path / "state", tmp_path / "fleet.yaml"
    fleet.write_text(FLEET)
    with serving(state, fleet) as client:
        prepare(client, tmp_path)
        before = client.vms()[0]
        code, planned, _ = vgpuctl(state, "driver", "upgrade", "--to", NEW, "--dry-run")
        assert (code, planned["waves"]) == (0, [["a-0"], ["a-1", "a-2"], ["bad-0"]])
        code, begun, _ = vgpuctl(state, "driver", "upgrade", "--to", NEW, "--no-wait")
        assert (code, begun["state"]) == (0, "running")
    with serving(state, fleet) as client:
        while (upgrade := client.maintenance())["state"] == "running":
            await_progress(client)
        phases = {one["host"]: one["phase"] for one in upgrade["hosts"]}
        assert phases == {"a-0": "done", "a-1": "done", "a-2": "done", "bad-0": "rolled_back"}
        after = client.vms()[0]
        assert (after["state"], after["device"]["type_name"]) == ("running", before["device"]["type_name"])
        code, _, said = vgpuctl(state, "driver", "upgrade", "--to", "999.1.1", "--hosts", "a-0")
        assert code == 5
        assert "bundle.missing" in said


def ended(client: Client, host: str) -> dict[str, Any]:
    """All hosts of the upgrade, by name, once that one has ended."""
    while not (hosts := {one["host"]: one for one in client.maintenance()["hosts"]})[host]["ended_at"]:
        await_progress(client)
    return hosts


def test_a_tenant_whose_users_stop_its_vms_is_waited_for_and_told(tmp_path: Path) -> None:
    state, fleet = tmp_path / "state", tmp_path / "fleet.yaml"
    fleet.write_text(FLEET)
    with serving(state, fleet) as client:
        prepare(client, tmp_path, host="a-0")
        assert vgpuctl(state, "policy", "set", "default", "maintenance=wait")[0] == 0
        assert vgpuctl(state, "driver", "upgrade", "--to", NEW, "--hosts", "a-0,a-1", "--no-wait")[0] == 0
        hosts = ended(client, "a-1")
        assert (hosts["a-1"]["phase"], hosts["a-0"]["phase"]) == ("done", "waiting")
        assert hosts["a-0"]["waits_for"] == [{"tenant": "default", "vms": 1, "policy": "wait", "opens_at": None}]
        planned = client.vm("train", "default")["maintenance"]
        assert planned is not None
        assert (planned["act"], planned["policy"], planned["opens_at"]) == ("upgrade", "wait", None)
        assert client.vms()[0]["maintenance"] == planned
        assert vgpuctl(state, "stop-vm", "train")[0] == 0
        assert ended(client, "a-0")["a-0"]["phase"] == "done"
        vm = client.vm("train", "default")
        assert (vm["state"], vm["maintenance"]) == ("stopped", None), "its user stopped it"


@pytest.mark.fault("F115")
def test_a_host_that_reboots_within_its_upgrade_outlives_the_server_that_began_it(tmp_path: Path) -> None:
    state, fleet = tmp_path / "state", tmp_path / "fleet.yaml"
    fleet.write_text(FLEET.replace(f'refuses_drivers: ["{NEW}"]', f'sticky_drivers: ["{NEW}"]'))
    with serving(state, fleet) as client:
        prepare(client, tmp_path, host="bad-0")
        before = client.vms()[0]
        assert vgpuctl(state, "driver", "upgrade", "--to", NEW, "--hosts", "bad-0", "--no-wait")[0] == 0
        while (one := client.maintenance()["hosts"][0])["phase"] != "rebooting":
            assert not one["ended_at"], one
            await_progress(client)
        assert "module nvidia is in use" in str(one["progress"])
    with serving(state, fleet) as client:
        ended(client, "bad-0")
        assert client.maintenance()["hosts"][0]["phase"] == "done"
        after = client.vms()[0]
        assert (after["state"], after["device"]["type_name"]) == ("running", before["device"]["type_name"])
    with serving(state, fleet) as client:
        assert vgpuctl(state, "driver", "upgrade", "--to", OLD, "--hosts", "bad-0", "--reboot", "never")[0] == 0
