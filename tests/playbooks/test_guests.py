# SPDX-License-Identifier: Apache-2.0
"""Roles in guests with the real Ansible, through a stream as an agent gives it, to an ssh server that is real."""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

import pytest

from orchestrator.adapters.ansible.guests import AnsibleGuests
from orchestrator.adapters.ansible.ssh_proxy import TcpStream
from orchestrator.adapters.state.clock import SystemClock
from orchestrator.adapters.state.guest_keys import GuestKeys
from orchestrator.core.errors import Retryable, VgpuctlError
from orchestrator.core.guest.guest import Guest, GuestRun, WantedRoles
from orchestrator.core.hosts.host import Host
from orchestrator.ports.host import ByteStream
from tests.fakes.loopback_guest import guest_on_loopback
from tests.playbooks.local_runs import ROOT
from tests.unit.adapters.ansible.hosts import host

RING = b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ="
KEYS = GuestKeys(RING, SystemClock())
VM = "11111111-1111-4111-8111-111111111111"
GUEST = Guest(vm=VM, name="default/train", host=host(), host_key=None, run="22222222-2222-4222-8222-222222222222")


def _never() -> bool:
    return False


@dataclass
class Site:
    """A server's way into one guest. ``opened``: what was asked of the agent."""

    directory: Path
    port: int
    opened: list[tuple[str, int]] = field(default_factory=list)
    refuses: VgpuctlError | None = None

    def open_tcp(self, _host: Host, vm: str, port: int) -> ByteStream:
        self.opened.append((vm, port))
        if self.refuses is not None:
            raise self.refuses
        return TcpStream("127.0.0.1", self.port)

    def guests(self, playbooks: Path = ROOT / "playbooks") -> AnsibleGuests:
        return AnsibleGuests(
            state=self.directory / "state",
            playbooks=playbooks,
            credential=KEYS.credential,
            open_tcp=self.open_tcp,
            clock=SystemClock(),
            user=getpass.getuser(),
        )

    def reach(self, guest: Guest = GUEST) -> GuestRun:
        return self.guests().reach(guest, _never)

    def playbook(self, *tasks: dict[str, object]) -> Path:
        """A directory of playbooks with one role, of these tasks."""
        playbooks = self.directory / "playbooks"
        tasks_file = playbooks / "roles/vgpuctl_tried/tasks/main.yml"
        tasks_file.parent.mkdir(parents=True)
        tasks_file.write_text(json.dumps(tasks))
        (playbooks / "tasks").mkdir()
        for name in ("provision-guest.yml", "tasks/own_settings.yml", "ansible.cfg"):
            (playbooks / name).write_text((ROOT / "playbooks" / name).read_text())
        return playbooks


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    home, allowed = tmp_path / "home", tmp_path / "authorized_keys"
    home.mkdir()
    line = KEYS.authority(VM).replace('principals="vgpuctl"', f'principals="vgpuctl,{getpass.getuser()}"')
    allowed.write_text(f"{line}\n")
    with guest_on_loopback(home, allowed) as port:
        yield Site(tmp_path, port)


def _provision(
    site: Site, playbooks: Path, progress: Callable[[str], None] = lambda _: None, stop: Callable[[], bool] = _never
) -> GuestRun:
    return site.guests(playbooks).provision(GUEST, WantedRoles(roles=("tried",)), progress, stop)


def test_a_guest_is_reached_through_its_hosts_agent_alone_and_shows_its_key(site: Site) -> None:
    run = site.reach()
    assert run.error is None
    assert run.host_key is not None
    assert run.host_key.startswith("ssh-ed25519 ")
    assert set(site.opened) == {(VM, 22)}
    assert site.reach(replace(GUEST, host_key=run.host_key)).error is None


def test_a_guest_that_shows_another_key_than_the_first_is_not_talked_to(site: Site) -> None:
    other = KEYS.authority("another").split()[1:3]
    error = site.reach(replace(GUEST, host_key=" ".join(other))).error
    assert error is not None
    assert error.code == "guest.key_changed"


def test_the_authority_of_another_vm_opens_nothing(site: Site) -> None:
    error = site.reach(replace(GUEST, vm="33333333-3333-4333-8333-333333333333")).error
    assert error is not None
    assert error.code == "guest.auth_failed"


def test_what_the_agent_says_is_told_rather_than_that_ssh_was_cut_off(site: Site) -> None:
    site.refuses = Retryable("vm.unreachable", "the VM does not answer on port 22")
    assert site.reach().error is site.refuses


def test_tasks_are_told_as_they_begin_and_a_second_run_changes_nothing(site: Site) -> None:
    made = site.directory / "made"
    playbooks = site.playbook(
        {"name": "Write it", "ansible.builtin.copy": {"dest": str(made), "content": "x", "mode": "0600"}},
        {"name": "Look at it", "ansible.builtin.stat": {"path": str(made)}},
    )
    told: list[str] = []
    first = _provision(site, playbooks, told.append)
    assert first.error is None
    (result,) = first.results
    assert (result.role, result.state, result.tasks_ok, result.tasks_changed) == ("tried", "changed", 2, 1)
    assert told[-2:] == ["Write it", "Look at it"]
    (again,) = _provision(site, playbooks).results
    assert (again.state, again.tasks_changed) == ("ok", 0)


def test_what_was_done_before_a_task_failed_is_told_with_the_tasks_title(site: Site) -> None:
    playbooks = site.playbook(
        {"name": "Do nothing", "ansible.builtin.command": {"argv": ["true"]}},
        {"name": "Break", "ansible.builtin.fail": {"msg": "[guest.no_driver] there is none"}},
    )
    run = _provision(site, playbooks)
    (result,) = run.results
    assert (result.state, result.failed_task, result.tasks_ok) == ("failed", "Break", 1)
    assert run.error is not None
    assert (run.error.code, run.error.message) == ("guest.no_driver", "default/train: there is none")


def test_a_run_that_is_to_end_leaves_nothing_running_and_no_key(site: Site) -> None:
    begun = Event()
    playbooks = site.playbook({"name": "Wait", "ansible.builtin.command": {"argv": ["sleep", "600"]}})
    run = _provision(site, playbooks, lambda title: begun.set() if "Wait" in title else None, begun.is_set)
    assert run.error is not None
    assert run.error.code == "guest.provisioning_unknown"
    assert [path.name for path in (site.directory / "state/ansible").iterdir()] == [f"vm-{VM}.log"]


def test_a_guest_without_a_driver_says_so_and_what_it_has_is_kept(site: Site) -> None:
    run = site.guests().provision(GUEST, WantedRoles(roles=("guest_check",)), lambda _: None, _never)
    assert run.error is not None
    assert run.error.code == "guest.no_driver"
    assert run.facts is not None
    assert run.facts.kernel
    assert run.facts.driver is None


def test_a_secret_is_a_file_of_the_run_and_stands_in_no_argument_event_or_log(site: Site) -> None:
    text, seen = "TOKEN {{ 7 * 7 }} {% raw %}", site.directory / "seen"
    playbooks = site.playbook(
        {"name": "Copy it", "no_log": True, "diff": False, "ansible.builtin.copy": {
            "src": "{{ vgpuctl_guest_licence_token_file }}", "dest": str(seen), "mode": "0400"}},
        {"name": "List processes", "ansible.builtin.shell": "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"},
        {"name": "Say it", "ansible.builtin.debug": {"var": "vgpuctl_guest_mps_thread_percentage"}},
    )  # fmt: skip
    wanted = WantedRoles(roles=("tried",), settings={"mps_thread_percentage": 50}, secrets={"licence_token": text})
    run = site.guests(playbooks).provision(GUEST, wanted, lambda _: None, _never)
    assert run.error is None
    assert seen.read_text() == text
    log = (site.directory / f"state/ansible/vm-{VM}.log").read_text()
    assert 'vgpuctl_guest_mps_thread_percentage": 50' in log.replace(": '50'", "")
    assert "TOKEN" not in log + repr(run) + repr(wanted)
    assert [path.name for path in (site.directory / "state/ansible").iterdir()] == [f"vm-{VM}.log"]


def test_what_a_run_starts_on_the_server_sees_no_file_process_or_network_of_it(site: Site) -> None:
    secret, kept = site.directory / "database_key", site.directory / "kept"
    secret.write_text("SECRET")
    looks = f"""
import os, socket
for what in ({str(secret)!r}, "/proc/{os.getpid()}/environ", "/etc/shadow", {str(site.directory / "state")!r} + "/x"):
    print(what, os.path.exists(what))
for where in (("127.0.0.1", {site.port}), ("192.0.2.1", 22)):
    try:
        socket.create_connection(where, timeout=2)
        print("reached")
    except OSError as error:
        print("no way", error.errno)
try:
    open({str(kept)!r}, "w").write("x")
except OSError:
    pass
"""
    playbooks = site.playbook(
        {"name": "Look around", "delegate_to": "localhost", "vars": {"ansible_become": False},
         "ansible.builtin.set_fact": {"seen": "{{ lookup('pipe', command) }}"}},
        {"name": "Say it", "ansible.builtin.debug": {"var": "seen"}},
    )  # fmt: skip
    (site.directory / "playbooks/look.py").write_text(looks)
    (playbooks / "roles/vgpuctl_tried/vars").mkdir()
    command = f"{sys.executable} {playbooks}/look.py"
    (playbooks / "roles/vgpuctl_tried/vars/main.yml").write_text(json.dumps({"command": command}))
    run = _provision(site, playbooks)
    log = (site.directory / f"state/ansible/vm-{VM}.log").read_text()
    assert run.error is None, log
    assert log.count("False") == 4, log
    assert log.count("no way") == 2
    assert "True" not in log
    assert not kept.exists()
