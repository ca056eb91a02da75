# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyrage.x25519 import Identity

from orchestrator.adapters.state.directory import LastBackup
from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.server.backup import DATABASE, back_up, restore
from tests.fakes.control_plane import KEY, T4_HOST, ControlPlane, control_plane, create_vm

NOW = 1_800_000_000.0
MAX_BYTES = 4 * 1024 * 1024


@pytest.fixture
def plane(tmp_path: Path) -> ControlPlane:
    """A VM that runs, and one whose making has not begun."""
    state = tmp_path / "old"
    (state / "secrets").mkdir(parents=True)
    (state / "secrets" / "database_key").write_bytes(KEY)
    made = control_plane(state)
    made.add_host(T4_HOST)
    made.services.vms.create(create_vm("kept"))
    made.engine.drain()
    made.services.vms.create(create_vm("begun"))
    return made


def restored(tmp_path: Path, plane: ControlPlane) -> ControlPlane:
    restore(tmp_path / "new", tmp_path / "backup", NOW)
    return control_plane(tmp_path / "new", hosts=plane.hosts)


def test_a_backup_of_a_database_in_use_is_restored_whole_and_is_secret(tmp_path: Path, plane: ControlPlane) -> None:
    with plane.store.begin():
        back_up(tmp_path / "old", tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    done = restore(tmp_path / "new", tmp_path / "backup", NOW)
    assert (done.hosts, done.vms, done.stuck) == (1, 2, 1)
    assert (tmp_path / "new" / "secrets" / "database_key").read_bytes() == KEY
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["secrets", DATABASE]
    plane.store.close()


def test_a_backup_that_was_made_is_remembered_and_one_that_failed_is_not(tmp_path: Path, plane: ControlPlane) -> None:
    last = LastBackup(tmp_path / "old")
    with pytest.raises(InvalidInput):
        back_up(tmp_path / "old", tmp_path / "absent" / "backup")
    assert last.at() == 0
    back_up(tmp_path / "old", tmp_path / "backup")
    assert last.at() == pytest.approx(time.time(), abs=60)


def test_what_had_not_ended_is_stuck_and_can_be_abandoned_or_retried(tmp_path: Path, plane: ControlPlane) -> None:
    back_up(tmp_path / "old", tmp_path / "backup")
    new = restored(tmp_path, plane)
    vm = new.services.vms.get("default", "begun")
    assert vm.state == "stuck"
    operation = new.services.operations.get(str(vm.operation))
    assert operation.error is not None
    assert operation.error["code"] == "operation.restored"
    new.services.operations.abandon(operation.id)
    assert [one.spec.name for one in new.services.vms.list(None)] == ["kept"]


@pytest.mark.fault("F99")
def test_an_old_backup_removes_nothing_from_a_host_and_the_hosts_obey_it(tmp_path: Path, plane: ControlPlane) -> None:
    back_up(tmp_path / "old", tmp_path / "backup")
    plane.engine.drain()
    plane.services.vms.create(create_vm("later"))
    plane.engine.drain()
    before, domains = plane.machine(T4_HOST).state(), len(plane.machine(T4_HOST).domains)
    with plane.store.read() as tx:
        old_epoch = tx.hosts.get(T4_HOST).epoch
    new = restored(tmp_path, plane)
    new.world.clock.sleep(3600.0)
    for _ in range(3):
        new.reconciler.round()
        new.engine.drain()
    assert plane.machine(T4_HOST).state() == before
    with new.store.read() as tx:
        assert tx.hosts.get(T4_HOST).epoch > old_epoch
    whose = {one.finding.whose for one in new.findings.list(host=T4_HOST)}
    assert "unknown" in whose
    assert "ours" not in whose
    new.services.vms.create(create_vm("more"))
    new.engine.drain()
    assert len(plane.machine(T4_HOST).domains) == domains + 1


def test_nothing_is_overwritten_and_nonsense_is_refused(tmp_path: Path, plane: ControlPlane) -> None:
    back_up(tmp_path / "old", tmp_path / "backup")
    with pytest.raises(Conflict, match="exists"):
        back_up(tmp_path / "old", tmp_path / "backup")
    with pytest.raises(Conflict, match="holds a database already"):
        restore(tmp_path / "old", tmp_path / "backup", NOW)
    (tmp_path / "nonsense").write_text("x")
    with pytest.raises(InvalidInput, match="no backup"):
        restore(tmp_path / "other", tmp_path / "nonsense", NOW)
    whole = (tmp_path / "backup").read_bytes()
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInput, match="no backup"):
        restore(tmp_path / "other", tmp_path / "half", NOW)
    with pytest.raises(InvalidInput, match="missing cannot be read: there is no such file"):
        restore(tmp_path / "other", tmp_path / "missing", NOW)
    with pytest.raises(InvalidInput, match="cannot be written: there is no such directory"):
        back_up(tmp_path / "old", tmp_path / "nowhere" / "backup")
    assert list((tmp_path / "other").iterdir()) == []
    with pytest.raises(InvalidInput, match="no database"):
        back_up(tmp_path / "other", tmp_path / "empty")
    assert not (tmp_path / "empty").exists()
    plane.store.close()


def test_a_backup_for_which_there_is_no_room_is_refused_and_leaves_nothing(tmp_path: Path, plane: ControlPlane) -> None:
    plane.store.close()
    (tmp_path / "old" / "secrets" / "large").write_bytes(os.urandom(MAX_BYTES + 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_BYTES, hard))
    try:
        with pytest.raises(InvalidInput, match="cannot be written: file too large"):
            back_up(tmp_path / "old", tmp_path / "backup")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "backup").exists()


def test_the_command_says_what_it_did_and_refuses_another_database(tmp_path: Path, plane: ControlPlane) -> None:
    plane.store.close()

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "orchestrator.cli.main", "server", *words]
        return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)

    file, old, new = str(tmp_path / "backup"), str(tmp_path / "old"), str(tmp_path / "new")
    assert "keep it secret" in run("backup", file, VGPUCTL_STATE=old).stdout
    assert "1 hosts, 2 VMs, 1 operations" in run("restore", file, VGPUCTL_STATE=new).stdout
    again = run("restore", file, VGPUCTL_STATE=new)
    assert (again.returncode, "backup.state_in_use" in again.stderr) == (5, True)
    other = run("backup", file, VGPUCTL_STATE=old, VGPUCTL_DATABASE_URL="postgresql+psycopg:///x")
    assert (other.returncode, "pg_dump" in other.stderr) == (2, True)


def _key_pair(tmp_path: Path, name: str = "key") -> tuple[Path, str]:
    """The file of a secret key as age-keygen writes it, and its public one."""
    identity = Identity.generate()
    public = str(identity.to_public())
    (tmp_path / name).write_text(f"# created: 2026-11-22T00:00:00Z\n# public key: {public}\n{identity}\n")
    return tmp_path / name, public


def test_an_encrypted_backup_is_restored_with_its_key_and_shows_nothing(tmp_path: Path, plane: ControlPlane) -> None:
    file, public = _key_pair(tmp_path)
    back_up(tmp_path / "old", tmp_path / "backup", [public, _key_pair(tmp_path, "second")[1]])
    content = (tmp_path / "backup").read_bytes()
    assert content.startswith(b"age-encryption.org/v1\n")
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    assert KEY not in content
    assert restore(tmp_path / "new", tmp_path / "backup", NOW, file).vms == 2
    assert restore(tmp_path / "other", tmp_path / "backup", NOW, tmp_path / "second").vms == 2
    assert (tmp_path / "new" / "secrets" / "database_key").read_bytes() == KEY
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["secrets", DATABASE]
    assert sorted(path.name for path in (tmp_path / "old").iterdir() if path.name.startswith("tmp")) == []
    plane.store.close()


def test_an_encrypted_backup_without_its_key_restores_nothing(tmp_path: Path, plane: ControlPlane) -> None:
    file, public = _key_pair(tmp_path)
    other, _ = _key_pair(tmp_path, "other")
    (tmp_path / "text").write_text("no key\n")
    (tmp_path / "nothing").write_text("# a comment\n")
    back_up(tmp_path / "old", tmp_path / "backup", [public])
    for identity, code in (
        (None, "backup.encrypted"), (other, "backup.other_identity"), (tmp_path / "text", "backup.identity_invalid"),
        (tmp_path / "nothing", "backup.identity_invalid"), (tmp_path / "absent", "backup.identity_invalid"),
        (Path("/dev/zero"), "backup.identity_invalid"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            restore(tmp_path / "new", tmp_path / "backup", NOW, identity)
        assert caught.value.code == code
    whole = (tmp_path / "backup").read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:]):
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(InvalidInput):
            restore(tmp_path / "new", tmp_path / "damaged", NOW, file)
    assert list((tmp_path / "new").iterdir()) == []
    plane.store.close()


@pytest.mark.parametrize("recipient", ["", "age1", "ssh-ed25519 AAAA", "AGE-SECRET-KEY-1", "age1\n"])
def test_a_recipient_that_is_none_makes_no_backup(tmp_path: Path, plane: ControlPlane, recipient: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        back_up(tmp_path / "old", tmp_path / "backup", [recipient])
    assert caught.value.code == "backup.recipient_invalid"
    assert not (tmp_path / "backup").exists()
    plane.store.close()
