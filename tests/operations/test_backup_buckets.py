# SPDX-License-Identifier: Apache-2.0
"""Targets that are buckets: what hosts are told of one, who has its key, and what becomes of a VM when it is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.actions.backups import RemoveBackup, StoreBackup, UsesRepository
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.bucket import Bucket, BucketKeys
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, Retryable
from orchestrator.core.wire import action_from_dict, action_to_dict
from tests.fakes import fake_actions
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane
from tests.operations import backups as own
from tests.operations.suspending import running

KEYS = BucketKeys(access_key="AKID-of-site-a", secret_key="its/secret+key")
BUCKET = Bucket(url="https://s3.example/backups/site-a/", region="garage", ca="", keys=KEYS)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    running(T4_HOST)(made)
    made.services.backup_targets.create("s3", bucket=BUCKET)
    yield made
    made.store.close()


def heard(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> list[UsesRepository]:
    """Actions about repositories, in order. ``error``: what each of them is refused for."""
    told: list[UsesRepository] = []
    original = fake_actions.perform_on

    def perform(machine: Any, action: Any) -> ActionResult:
        if isinstance(action, UsesRepository):
            told.append(action)
            if error is not None:
                raise error
        return original(machine, action)

    monkeypatch.setattr("tests.fakes.fake_host.perform_on", perform)
    return told


def test_hosts_are_given_the_key_and_nobody_else_has_it(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = heard(monkeypatch)
    own.run(plane)
    plane.engine.drain()
    (store,) = told
    assert store.bucket == replace(BUCKET, url="https://s3.example/backups/site-a")
    assert action_from_dict(action_to_dict(store)) == store
    assert isinstance(store, StoreBackup)
    assert store.inverse() == RemoveBackup(
        target="s3", of_vm=store.of_vm, password=store.password, backup=store.backup, size_bytes=store.size_bytes,
        bucket=store.bucket,
    )  # fmt: skip
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"s3.example/backups/site-a" in stored
    for key in (KEYS.access_key, KEYS.secret_key):
        assert key.encode() not in stored
        assert key not in repr(store)


def test_another_key_is_given_from_the_next_backup_on(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    told, other = heard(monkeypatch), BucketKeys(access_key="other", secret_key="another")
    plane.services.backup_targets.change("s3", 50 * 2**20, other)
    own.run(plane)
    plane.engine.drain()
    assert told[0].bucket is not None
    assert told[0].bucket.keys == other
    plane.services.backup_targets.create("nas")
    with pytest.raises(Conflict) as directory:
        plane.services.backup_targets.change("nas", None, other)
    assert directory.value.code == "backup.no_keys"
    for broken in ("", "two\nlines", "of ö"):
        with pytest.raises(InvalidInput) as refused:
            plane.services.backup_targets.change("s3", None, replace(other, secret_key=broken))
        assert refused.value.code == "backup.keys_invalid"


def test_what_is_no_bucket_makes_no_target(plane: ControlPlane) -> None:
    wrong = {"backup.s3_invalid": replace(BUCKET, url="https://s3.example"),
             "backup.ca_invalid": replace(BUCKET, ca="no certificate"),
             "backup.keys_invalid": replace(BUCKET, keys=replace(KEYS, access_key=""))}  # fmt: skip
    for code, bucket in wrong.items():
        with pytest.raises(InvalidInput) as refused:
            plane.services.backup_targets.create("other", bucket=bucket)
        assert refused.value.code == code
    assert [target.name for target in plane.services.backup_targets.list()] == ["s3"]


@pytest.mark.parametrize(
    "error", [Retryable("backup.unreachable", "not reached"), Fatal("backup.s3_denied", "refused")]
)
def test_a_bucket_that_is_lost_leaves_no_operation_stuck(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """An outage at night would leave each VM with one."""
    heard(monkeypatch, error)
    operation = str(own.run(plane))
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "undone"
    vm = plane.services.vms.get("default", "train")
    assert (vm.state, vm.snapshots, plane.services.backups.list(None)) == ("running", (), ())


def test_its_key_goes_with_its_target(plane: ControlPlane) -> None:
    plane.services.backup_targets.delete("s3")
    plane.services.backup_targets.create("s3", bucket=replace(BUCKET, keys=replace(KEYS, access_key="new")))
    with plane.store.read() as tx:
        assert tx.secrets.get("backup_keys:s3") == f"new\n{KEYS.secret_key}"
