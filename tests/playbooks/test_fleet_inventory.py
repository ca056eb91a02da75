# SPDX-License-Identifier: Apache-2.0
"""The inventory plugin in the real Ansible, before a real server; a VM's ssh server is real and on the loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from orchestrator.cli.main import run
from tests.fakes.loopback_guest import guest_on_loopback
from tests.fakes.running import running_server
from tests.fakes.world import FINGERPRINT
from tests.playbooks.local_runs import ROOT


@dataclass(frozen=True)
class Site:
    """A server with one host and the VM ``train``, and what Ansible is run with."""

    state: Path
    scratch: Path

    def ansible(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name(program), "-i", str(self.scratch / "fleet.vgpuctl.yml"), *words],
            cwd=self.scratch, capture_output=True, text=True, timeout=300,
            env={
                "PATH": os.environ["PATH"], "HOME": str(self.scratch), "VGPUCTL_STATE": str(self.state),
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"), "ANSIBLE_PIPELINING": "True",
                "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True", "LC_ALL": "C.UTF-8",
            },
        )  # fmt: skip

    def configure(self, more: str = "") -> None:
        (self.scratch / "fleet.vgpuctl.yml").write_text(f"plugin: vgpuctl.cloud.fleet\n{more}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    scratch = tmp_path_factory.mktemp("site")
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(scratch / "id")
    (scratch / "id").chmod(0o600)
    key.write_public_key(scratch / "id.pub")
    with (
        guest_on_loopback(scratch, scratch / "id.pub") as port,
        running_server(scratch / "state", "--guest-port", str(port)) as state,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("VGPUCTL_STATE", str(state))
        assert run(["create-vm", "train", "--profile", "t4-small", "--ssh-key", str(scratch / "id.pub")]) == 0
        made = Site(state=state, scratch=scratch)
        made.configure()
        yield made


def test_hosts_and_vms_are_grouped_by_what_they_are(site: Site) -> None:
    site.configure()
    done = site.ansible("ansible-inventory", "--graph")
    assert done.returncode == 0, done.stderr
    graph: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name = line.lstrip(" |-")
        if name.startswith("@"):
            members = graph.setdefault(name.strip("@:"), [])
        else:
            members.append(name)
    host, vm = "gpu1", "train.default"
    assert {group: names for group, names in graph.items() if names} == {
        "vgpuctl_hosts": [host], "vgpuctl_vms": [vm], "site_here": [host, vm], "gpu_model_tesla_t4": [host],
        "driver_580_95": [host], "host_gpu1": [vm], "tenant_default": [vm], "offering_t4_small": [vm],
        "state_ready": [host], "state_running": [vm],
    }  # fmt: skip


def test_a_play_reaches_a_vm_through_the_server(site: Site) -> None:
    site.configure("user: debian\n")
    done = site.ansible("ansible", "vgpuctl_vms", "-m", "ansible.builtin.command", "-a", "printenv HOME")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["train.default | CHANGED | rc=0 >>", str(site.scratch)]


def test_groups_of_ones_own_are_made_from_what_is_known(site: Site) -> None:
    site.configure("keyed_groups:\n  - key: vgpuctl_kind\n    prefix: kind\n")
    done = site.ansible("ansible-inventory", "--list")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kind_vm"] == {"hosts": ["train.default"]}


def test_our_inventory_can_be_imported_by_another_server(site: Site, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    listed = subprocess.run(
        [Path(sys.executable).with_name("vgpuctl"), "inventory"],
        env={**os.environ, "VGPUCTL_STATE": str(site.state)}, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    variables = json.loads(listed.stdout)["_meta"]["hostvars"]["gpu1"]
    assert variables["vgpuctl_gpus"] == "0000:41:00.0"
    assert variables["vgpuctl_host_key_fingerprint"].startswith(FINGERPRINT[:7])


def test_a_server_that_refuses_is_said_by_the_plugin_in_its_own_words(site: Site) -> None:
    site.configure("context: nowhere\n")
    done = site.ansible("ansible-inventory", "--graph")
    assert done.returncode != 0
    assert "there is no context 'nowhere'" in " ".join(done.stderr.split())
