# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from orchestrator.agent.ledger import Ledger, Ownership
from orchestrator.agent.paths import Paths
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.actions.host_actions import FencingToken, MakeVgpu, VgpuPosition
from orchestrator.core.errors import Conflict, Denied, Fatal
from orchestrator.core.protocol import restored_epoch
from orchestrator.sim.machine import SimulatedLedger


def opened(directory: Path, *, epoch: int = 1, boot_id: str = "boot-1", site: str = "s") -> Ledger:
    return Ledger(directory, site=site, epoch=epoch, boot_id=boot_id)


def token(epoch: int, attempt: int, operation: str = "op") -> FencingToken:
    return FencingToken(site="s", epoch=epoch, operation=operation, attempt=attempt)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from("ab")), max_size=20), st.data())
def test_a_token_is_admitted_exactly_when_nothing_newer_was(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[tuple[int, int, str]], data: DataObject
) -> None:
    directory = tmp_path_factory.mktemp("ledger")
    ledger, simulated = opened(directory, epoch=0), SimulatedLedger(site="s")
    epoch, attempts = 0, dict[str, int]()
    for new_epoch, attempt, operation in tokens:
        if data.draw(st.booleans()):
            ledger.close()
            ledger = opened(directory, epoch=0)
        stale = new_epoch < epoch or (new_epoch == epoch and attempt < attempts.get(operation, 0))
        if stale:
            for admit in (ledger.admit, simulated.admit):
                with pytest.raises(Denied, match="a newer controller or attempt"):
                    admit(token(new_epoch, attempt, operation))
            continue
        ledger.admit(token(new_epoch, attempt, operation))
        simulated.admit(token(new_epoch, attempt, operation))
        if new_epoch > epoch:
            epoch, attempts = new_epoch, {}
        attempts[operation] = attempt
    ledger.close()


@pytest.mark.parametrize("far", [2**31 - 1, 2**31, 2**62, 2**63, 10**40])
def test_an_epoch_that_no_server_has_counted_to_locks_nobody_out(tmp_path: Path, far: int) -> None:
    ledger = opened(tmp_path)
    with pytest.raises(Denied) as caught:
        ledger.admit(token(far, 1))
    assert caught.value.code == "agent.epoch_ahead"
    assert ledger.epoch() == 1
    ledger.admit(token(2, 1))
    restored = restored_epoch(2, time.time())
    ledger.admit(token(restored, 1))
    ledger.admit(token(restored + 1, 1))
    ledger.close()


def test_owners_survive_a_restart_and_what_lives_in_kernel_memory_does_not_survive_a_reboot(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.claim("volume:a", "vm-1")
    ledger.claim("vf:1", "vm-1", detail="14 Q", until_reboot=True)
    ledger.manage_gpus(("0000:02:00.0", "0000:01:00.0"))
    ledger.close()

    again = opened(tmp_path)
    assert again.owner("vf:1") == Ownership("vm-1", "14 Q")
    assert again.managed_gpus() == {"0000:01:00.0", "0000:02:00.0"}
    again.close()

    rebooted = opened(tmp_path, boot_id="boot-2")
    assert rebooted.owner("volume:a") == Ownership("vm-1", "")
    assert rebooted.owner("vf:1") is None
    rebooted.claim("vf:1", "vm-2", until_reboot=True)


def test_an_object_has_one_owner_until_it_is_released(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.claim("volume:a", "vm-1")
    ledger.claim("volume:a", "vm-1", detail="again")
    with pytest.raises(Conflict):
        ledger.claim("volume:a", "vm-2")
    ledger.release("volume:a")
    ledger.claim("volume:a", "vm-2")


def test_a_configuration_with_a_higher_epoch_shuts_older_controllers_out(tmp_path: Path) -> None:
    opened(tmp_path).close()
    ledger = opened(tmp_path, epoch=5)
    with pytest.raises(Denied):
        ledger.admit(token(4, 9))


def test_after_a_take_over_the_new_sites_own_epochs_count(tmp_path: Path) -> None:
    old = opened(tmp_path, epoch=7, site="former")
    old.claim("volume:a", "vm-1")
    old.close()
    ledger = opened(tmp_path, epoch=1)
    ledger.admit(token(1, 1))
    assert (ledger.epoch(), ledger.owner("volume:a")) == (1, Ownership("vm-1", ""))


def test_a_ledger_that_cannot_be_written_is_an_error_and_not_a_guess(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Fatal) as refused:
        opened(tmp_path / "file" / "ledger")
    assert refused.value.code == "agent.ledger_unusable"


def landed(directory: Path) -> Path:
    """A ledger as the first agents have left it."""
    directory.mkdir()
    file = directory / "ledger.sqlite"
    with closing(sqlite3.connect(file)) as database:
        database.executescript((Path(__file__).parents[2] / "landed" / "ledger.sql").read_text())
    return file


def test_a_ledger_of_the_first_agents_is_taken_over_with_all_it_holds(tmp_path: Path) -> None:
    landed(tmp_path / "ledger")
    for _ in range(2):
        ledger = opened(tmp_path / "ledger")
        restored = RestoreList(Paths(root=tmp_path, storage=tmp_path), ledger, "boot-1")
        assert restored.vms() == ("a", "b")
        assert restored.functions() == ("0000:02:00.0",)
        mdev, function = restored.find("a"), restored.find("b")
        assert mdev is not None
        assert function is not None
        uuid = "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11"
        assert mdev.devices == (MakeVgpu(vm="a", uuid=uuid, parent="0000:01:00.0", type_name="GRID T4-2Q"),)
        assert function.devices == (MakeVgpu(vm="b", parent="0000:02:00.1", type_name="NVIDIA L40S-2Q"),)
        assert ledger.owner(f"mdev:{uuid}") == Ownership(vm="a", detail="0000:01:00.0 GRID T4-2Q")
        with pytest.raises(Denied):
            ledger.admit(token(1, 0, "op1"))
        ledger.close()


OF_PROTOCOL_9 = [
    {"action": "SetMixedSizes", "vm": "a", "gpu": "0000:02:00.0"},
    {"action": "SetPlacedType", "vm": "a", "vf": "0000:02:00.1", "type_name": "L40S-2Q", "placement_id": 0},
    {"action": "CreatePlacedMdev", "vm": "a", "uuid": "u", "parent": "p", "type_name": "T4-2Q", "placement_id": 4},
    {"action": "SetInstanceType", "vm": "a", "vf": "0000:03:00.4", "type_name": "t", "gpu": "0000:03:00.0", "start": 0},
    {"action": "CreateInstanceMdev", "vm": "a", "uuid": "u", "parent": "p", "type_name": "t", "gpu": "g", "start": 2},
    {"action": "GiveNicFunction", "vm": "a", "card": "c", "vf": "0000:05:00.2", "functions": 4, "mac": "m"},
]  # fmt: skip


def test_what_older_agents_made_is_made_again_by_the_one_action(tmp_path: Path) -> None:
    """Where it lay, and what is no vGPU, stays as it was."""
    opened(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as database:
        wanted = "INSERT INTO wanted (vm, running, devices) VALUES (?, 1, ?)"
        database.executemany(wanted, [("a", json.dumps(OF_PROTOCOL_9)), ("b", "")])
        database.execute("ALTER TABLE wanted DROP COLUMN gone")
        database.execute("DROP TABLE power_limits")
        database.execute("PRAGMA user_version = 7")
        database.commit()
    ledger = opened(tmp_path)
    restored = RestoreList(Paths(root=tmp_path, storage=tmp_path), ledger, "boot-1")
    wanted_of_a, wanted_of_b = restored.find("a"), restored.find("b")
    assert wanted_of_a is not None
    assert wanted_of_b is not None
    settings, *vgpus, nic = wanted_of_a.devices
    assert (type(settings).__name__, type(nic).__name__) == ("SetMixedSizes", "GiveNicFunction")
    assert vgpus == [
        MakeVgpu(vm="a", parent="0000:02:00.1", type_name="L40S-2Q", at=VgpuPosition(within="gpu", start=0)),
        MakeVgpu(vm="a", uuid="u", parent="p", type_name="T4-2Q", at=VgpuPosition(within="gpu", start=4)),
        MakeVgpu(vm="a", parent="0000:03:00.4", type_name="t", at=VgpuPosition(within="instance", start=0)),
        MakeVgpu(vm="a", uuid="u", parent="p", type_name="t", at=VgpuPosition(within="instance", start=2)),
    ]
    assert wanted_of_b.devices == ()
    ledger.close()


def test_an_upgrade_that_is_cut_short_leaves_the_ledger_as_it_was(tmp_path: Path) -> None:
    file = landed(tmp_path / "ledger")
    with closing(sqlite3.connect(file)) as database:
        database.execute("ALTER TABLE wanted ADD COLUMN devices TEXT")  # renaming fails
        before = list(database.iterdump())
    with pytest.raises(Fatal):
        opened(tmp_path / "ledger")
    with closing(sqlite3.connect(file)) as database:
        assert list(database.iterdump()) == before
        assert database.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_ledger_of_a_newer_agent_is_refused_and_left_alone(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as database:
        database.execute("PRAGMA user_version = 99")
    before = (tmp_path / "ledger.sqlite").read_bytes()
    with pytest.raises(Fatal) as refused:
        opened(tmp_path)
    assert refused.value.code == "agent.ledger_newer"
    assert (tmp_path / "ledger.sqlite").read_bytes() == before
