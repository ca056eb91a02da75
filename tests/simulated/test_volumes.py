# SPDX-License-Identifier: Apache-2.0
"""A data volume from the file that wants it to its end, with the command line, on hosts in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client.client import Client
from orchestrator.core.errors import Conflict
from tests.fakes.several import until
from tests.fakes.simulated import serving_fleet

FLEET = """\
groups:
  - {name: l40s, count: 3, gpu_model: L40S, gpus_per_host: 1, vcpus: 32, memory_gib: 128, pools: [fast]}
"""
WANTED = """\
schema_version: 1
volumes:
  - {name: data, size: 20GiB}
vms:
  - {name: train, profile: NVIDIA L40S-12Q, image: demo, volumes: [data]}
"""


class Site:
    """The command line and the client of one server."""

    def __init__(self, state: Path, client: Client) -> None:
        self.state, self.client = state, client

    def run(self, *words: str, code: int = 0) -> str:
        """What the command printed."""
        command = [sys.executable, "-m", "orchestrator.cli.main", *words]
        ended = subprocess.run(
            command, env={"VGPUCTL_STATE": str(self.state), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert ended.returncode == code, ended.stderr
        return ended.stdout

    def told(self, *words: str) -> Any:
        """What the command printed as JSON."""
        return json.loads(self.run(*words, "-o", "json"))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving_fleet(tmp_path, FLEET) as client:
        yield Site(tmp_path / "state", client)


def test_what_a_file_wants_is_made_attached_exported_and_kept(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(WANTED)
    site.run("apply", "-f", str(file))
    site.run("plan", "-f", str(file))
    exported = site.run("export")
    assert "name: data" in exported
    assert "volumes:" in exported
    assert "data" in site.run("show-vm", "train")
    volume = site.told("volume", "show", "data")
    assert (volume["state"], volume["vm"], volume["size_bytes"]) == ("ready", "train", 20 * 1024**3)
    assert site.client.observe_findings(None) == []
    with pytest.raises(Conflict) as kept:
        site.client.delete_volume("data", "default")
    assert "VM train" in kept.value.message
    site.run("delete-vm", "train", "--yes")
    there = site.told("volume", "list")
    assert [(one["name"], one["vm"], one["host"]) for one in there] == [("data", None, volume["host"])]
    found = site.told("explain", "--profile", "NVIDIA L40S-12Q", "--volume", "data")
    assert (found["fits"], found["host"]) == (True, volume["host"])
    site.run("create-vm", "next", "-p", "NVIDIA L40S-12Q", "--volume", "data")
    assert site.client.vm("next", "default")["host"] == volume["host"]


def test_a_file_has_vms_that_read_a_volume_and_its_export_says_so(site: Site, tmp_path: Path) -> None:
    site.run("volume", "create", "data", "--size", "20G")
    site.run("create-vm", "filler", "-p", "NVIDIA L40S-12Q", "--volume", "data")
    site.run("delete-vm", "filler", "--yes")
    file = tmp_path / "site.yaml"
    vm = "{profile: NVIDIA L40S-12Q, image: demo, volumes: ['data:ro']"
    file.write_text(f"schema_version: 1\nvms:\n  - {vm}, name: one}}\n  - {vm}, name: two}}\n")
    site.run("apply", "-f", str(file))
    site.run("plan", "-f", str(file))
    assert site.run("export").count("data:ro") == 2
    assert site.told("volume", "show", "data")["read_by"] == ["one", "two"]
    assert "data:ro" in site.run("show-vm", "one")
    file.write_text(file.read_text().replace("data:ro", "dta:ro").replace("name: one", "name: three"))
    with pytest.raises(AssertionError, match="no volume is called"):
        site.run("plan", "-f", str(file))
    for name in ("one", "two"):
        site.run("delete-vm", name, "--yes")
    assert site.client.observe_findings(None) == []


def test_a_vm_takes_a_volume_while_it_runs_and_gives_it_when_it_is_stopped(site: Site) -> None:
    site.run("create-vm", "train", "-p", "NVIDIA L40S-12Q")
    site.run("volume", "create", "data", "--size", "20G")
    assert "attached to train" in site.run("volume", "attach", "data", "train")
    assert site.client.vm("train", "default")["volumes"] == ["data"]
    site.run("stop-vm", "train")
    site.run("volume", "detach", "data", "train")
    assert site.client.vm("train", "default")["volumes"] == []
    site.run("volume", "delete", "data", "--yes")
    assert site.told("volume", "list") == []
    assert site.client.observe_findings(None) == []


def test_hosts_that_have_a_pool_mounted_are_known_to_reach_it_before_their_next_turn(site: Site) -> None:
    site.run("pool", "create", "fast")
    until(lambda: len(site.client.pool("fast")["hosts"]) == 3, limit_s=10)
