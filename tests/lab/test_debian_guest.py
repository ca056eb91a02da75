# SPDX-License-Identifier: Apache-2.0
"""Roles of guests in a Debian that boots: its own apt, systemd, cloud-init and compiler, the user that our seed makes.

It is reached through a stream as an agent gives it. It has no GPU; what is NVIDIA's is the lab's, or packages that
stand in for it, in a repository of the guest's own."""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from orchestrator.adapters.ansible.guests import AnsibleGuests
from orchestrator.adapters.ansible.ssh_proxy import TcpStream
from orchestrator.adapters.seed.nocloud import NoCloudSeeds
from orchestrator.adapters.state.clock import SystemClock
from orchestrator.adapters.state.guest_keys import GuestKeys
from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.drivers.host_drivers import DriverFile
from orchestrator.core.guest.guest import Guest, GuestRun, WantedRoles
from orchestrator.ports.files import Seed
from tests.lab.conftest import lab
from tests.lab.debian_machine import MAC, debian_machine
from tests.unit.adapters.ansible.hosts import host

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]
KEYS = GuestKeys(b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ=", SystemClock())
VM = "11111111-1111-4111-8111-111111111111"
GUEST = Guest(vm=VM, name="default/train", host=host(), host_key=None, run="22222222-2222-4222-8222-222222222222")
VERSION = "550.163.01"
TOKEN = "TOKEN-that-nobody-else-reads {{ 7 * 7 }}"
ROLES = ("guest_driver", "guest_cuda", "guest_container_toolkit", "guest_licence", "guest_exporter")
_WITHIN_S = 1500.0


@dataclass(frozen=True)
class Site:
    """One guest, and the server's way into it."""

    directory: Path
    port: int

    @property
    def guests(self) -> AnsibleGuests:
        return AnsibleGuests(
            state=self.directory / "state",
            playbooks=ROOT / "playbooks",
            credential=KEYS.credential,
            open_tcp=lambda _host, _vm, _port: TcpStream("127.0.0.1", self.port),
            clock=SystemClock(),
        )

    def provision(self, *roles: str, progress: Callable[[str], None] = lambda _title: None) -> GuestRun:
        wanted = WantedRoles(
            roles=roles,
            driver=self.driver,
            cudnn="9.13.1.26",
            settings={"exporter_port": 9401, "licence_feature": "compute"},
            secrets={"licence_token": TOKEN},
        )
        return self.guests.provision(GUEST, wanted, progress, lambda: False)

    @property
    def driver(self) -> DriverFile:
        path = self.directory / f"NVIDIA-Linux-x86_64-{VERSION}-grid.run"
        return DriverFile(
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(), kind="vgpu_guest", version=VERSION, format="run",
            path=str(path), package=path.stem,
        )  # fmt: skip

    def run(self, command: str) -> str:
        """As root in the guest, with a key of the test's own."""
        done = subprocess.run(
            ["ssh", "-F", "none", "-q", "-i", self.directory / "key", "-p", str(self.port),
             "-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no", "root@127.0.0.1", command],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("guest")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / "key"], check=True)
    wanted = Seed(
        vm=VM, hostname="train", ssh_keys=((directory / "key.pub").read_text().strip(),), cards=(MAC,),
        user_data=(ROOT / "tests/lab/guest_packages.sh").read_text(),
    )  # fmt: skip
    seed = NoCloudSeeds(KEYS.authority).build(wanted)
    lab("driver-bundle", "--guest", "--version", VERSION, "--directory", str(directory))
    with debian_machine(directory, seed) as port:
        one = Site(directory, port)
        deadline = time.monotonic() + _WITHIN_S
        while one.guests.reach(GUEST, lambda: False).error is not None:
            assert time.monotonic() < deadline, (directory / "console.log").read_text(errors="replace")[-4000:]
        one.run("until [ -e /srv/ready ]; do sleep 1; done")
        yield one


def test_a_guest_is_provisioned_and_what_it_has_is_told(site: Site) -> None:
    told: list[str] = []
    run = site.provision(*ROLES, progress=told.append)
    assert run.error is None, run.error
    assert [(one.role, one.state) for one in run.results] == [(role, "changed") for role in ROLES]
    assert dict(run.versions) == {
        "cuda_toolkit": "12.4", "cudnn": "9.13.1", "docker": "26.1.5", "container_toolkit": "1.17.4",
    }  # fmt: skip
    assert "Install cuDNN" in told
    assert site.run("cat /sys/module/nvidia/version").strip() == VERSION
    running = site.run(
        "systemctl is-active docker nvidia-gridd nvidia-dcgm-exporter; systemctl is-enabled nvidia-gridd"
    )
    assert running.split() == ["active", "active", "active", "enabled"]
    assert "nvidia" in site.run("cat /run/docker-has")
    assert "FeatureType=4" in site.run("cat /etc/nvidia/gridd.conf")


def test_a_second_run_changes_nothing(site: Site) -> None:
    run = site.provision(*ROLES)
    assert run.error is None, run.error
    assert [(one.role, one.state, one.tasks_changed) for one in run.results] == [(role, "ok", 0) for role in ROLES]


def test_the_token_is_roots_alone_and_nobody_wrote_it_down(site: Site) -> None:
    kept = "/etc/nvidia/ClientConfigToken/client_configuration_token_vgpuctl.tok"
    assert site.run(f"stat -c '%a %U' {kept}; cat {kept}").splitlines() == ["400 root", TOKEN]
    assert site.run("grep -rl TOKEN-that /var /tmp /home /root /run /etc || true").split() == [kept]
    left = [path for path in (site.directory / "state").rglob("*") if path.is_file()]
    assert left
    assert not any("TOKEN-that" in path.read_text(errors="replace") for path in left)


def test_what_is_wrong_with_a_guest_is_told_and_what_was_found_is_kept(site: Site) -> None:
    run = site.provision("guest_check")
    assert run.error is not None
    assert run.error.code == "guest.check_failed"
    assert run.facts is not None
    seen = {name: value for name, value in asdict(run.facts).items() if name in {"driver", "cuda_toolkit"}}
    assert seen == {"driver": VERSION, "cuda_toolkit": "12.4"}
    assert (run.facts.system or "").startswith("Debian GNU/Linux 13")
    assert run.facts != GuestFacts()
