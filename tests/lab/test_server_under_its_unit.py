# SPDX-License-Identifier: Apache-2.0
"""The server under deploy's unit and the agent under the role's, on one host that has systemd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conftest import LabHost, lab, of_scenario
from tests.lab.enrolled import MDEV, SMALL
from tests.lab.host_facts import facts, vgpu_count
from tests.lab.server_on_host import ServerOnHost

pytestmark = pytest.mark.lab

_KEY = "/root/own-key"
_TO_ITSELF = f"""
ssh-keygen -q -t ed25519 -N '' -C own-key -f {_KEY} <<< y >/dev/null
cat {_KEY}.pub >> /root/.ssh/authorized_keys
"""


@pytest.fixture(scope="module")
def host() -> Iterator[LabHost]:
    """Alone: a second emulated host would take half of the processor."""
    yield from of_scenario(MDEV.scenario)


@pytest.fixture(scope="module")
def server(host: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerOnHost]:
    one = ServerOnHost(host)
    try:
        one.install(tmp_path_factory.mktemp("server"))
        yield one
    finally:
        one.remove()
        host.run(f"sed -i '/own-key/d' /root/.ssh/authorized_keys; rm -f {_KEY}* /srv/guest.qcow2")


def test_it_is_ready_as_an_account_without_privileges(server: ServerOnHost) -> None:
    assert server.host.run("systemctl is-active vgpuctl").strip() == "active"
    pid = server.json("server", "status")["pid"]
    status = dict(line.split(":", 1) for line in server.host.run(f"cat /proc/{pid}/status").splitlines() if ":" in line)
    account = server.host.run("id -u vgpuctl").strip()
    assert status["Uid"].split() == [account] * 4
    assert {status[name].strip() for name in ("CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("1", "2")


@pytest.mark.soak
def test_it_enrols_a_host_and_runs_a_vm_there_and_gives_both_back(server: ServerOnHost) -> None:
    host, kind = server.host, MDEV
    before = facts(host.run)
    host.run(_TO_ITSELF)
    host.send(Path(lab("guest-image").strip()), "/srv/guest.qcow2")
    gpu = host.run("lspci -D -d 10de::0302 | cut -d' ' -f1 | grep ':00.0$' | head -n 1").strip()
    server.ok(
        "host", "add", "self", "--address", "127.0.0.1", "--user", "root", "--provisioning-key", _KEY,
        "--host-key-fingerprint", host.host_key_fingerprint, "--gpus", gpu, limit_s=1200,
    )  # fmt: skip
    shown = server.json("host", "show", "self")
    assert (shown["state"], shown["software"]["confinement"]) == ("ready", "apparmor")
    assert host.run("systemctl is-active vgpuctl-agent").strip() == "active"
    server.ok("host", "set", "self", "--vcpu-overcommit", "8")
    server.ok("image", "add", "guest", "/srv/guest.qcow2")
    server.ok("create-vm", "train", "--profile", kind.profile, "--image", "guest", *SMALL)
    assert server.json("show-vm", "train")["state"] == "running"
    assert vgpu_count(host.run) == 1
    server.ok("delete-vm", "train")
    server.ok("image", "remove", "guest", "--yes")
    server.ok("host", "remove", "self", "--yes", limit_s=1200)
    assert facts(host.run) == before


def test_it_is_stopped_and_started_like_any_service(server: ServerOnHost) -> None:
    server.host.run("systemctl restart vgpuctl")
    shown = server.host.run("systemctl show -p NRestarts -p Result vgpuctl").split()
    assert sorted(shown) == ["NRestarts=0", "Result=success"]
    assert server.json("host", "list") == []
