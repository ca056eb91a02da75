# SPDX-License-Identifier: Apache-2.0
"""Secrets are put in at every door, and then looked for wherever something is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.tree import ENTRIES, load
from orchestrator.core.errors import VgpuctlError
from orchestrator.services.tenancy.tenancy import Tenancy
from orchestrator.store.database import Store
from tests.fakes.control_plane import KEY, ControlPlane, create_vm, plane_with

PLANTED = "planted-4711-secret"
USER_DATA = f"#cloud-config\npassword: {PLANTED}\n"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, "t4") as made:
        yield made


def _live(plane: ControlPlane) -> None:
    """A VM made, refused, repeated with other data, stopped and started, all with the secret in its user data."""
    vms, engine = plane.services.vms, plane.engine
    wanted = replace(create_vm("train"), user_data=USER_DATA)
    vms.create(wanted)
    engine.drain()
    for refused in (replace(wanted, user_data=USER_DATA + "x"), replace(wanted, name="other", profile="nothing")):
        with pytest.raises(VgpuctlError):
            vms.create(refused)
    vms.plan(replace(wanted, name="dry"))
    for verb in (vms.stop, vms.start):
        verb("default", "train")
        engine.drain()


def _kept(directory: Path) -> bytes:
    """Every byte of every file, the database's journals too."""
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


def _rows(store: Store) -> str:
    with store.read() as tx:
        jobs = [tx.operations.get(one.id) for one in tx.operations.list()]
        return repr([jobs, list(tx.audit.all()), tx.vms.list()])


def test_user_data_is_readable_nowhere_but_through_the_key(
    plane: ControlPlane, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    _live(plane)
    assert PLANTED.encode() not in _kept(tmp_path)
    assert PLANTED not in _rows(plane.store)
    assert PLANTED not in caplog.text
    with plane.store.read() as tx:
        vm = tx.vms.find("default", "train")
        assert vm is not None
        assert tx.secrets.get(str(vm.spec.user_data)) == USER_DATA
    assert KEY not in _kept(tmp_path)


def test_user_data_is_gone_with_its_vm(plane: ControlPlane) -> None:
    _live(plane)
    with plane.store.read() as tx:
        vm = tx.vms.find("default", "train")
        assert vm is not None
        secret = str(vm.spec.user_data)
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    with plane.store.read() as tx, pytest.raises(VgpuctlError) as caught:
        tx.secrets.get(secret)
    assert caught.value.code == "secret.missing"


def test_a_token_is_kept_nowhere(plane: ControlPlane, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    people: Tenancy = plane.services.tenancy
    record, text = people.tokens.create("default", "tenant-user", None)
    assert people.access.of_token(text).actor == f"token:{record.id}"
    with pytest.raises(VgpuctlError):
        people.access.of_token(text[:-1] + ("A" if text[-1] != "A" else "B"))
    people.tokens.revoke("default", record.id)
    secret = text.rsplit(f"{record.id}_", 1)[1]
    kept = _kept(tmp_path)
    assert record.id.encode() in kept
    assert secret.encode() not in kept
    assert secret not in _rows(plane.store) + caplog.text


def test_a_licence_token_is_readable_nowhere_while_it_waits_and_after_its_run(
    plane: ControlPlane, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plane.services.vms.create(create_vm("train"))
    plane.engine.drain()
    with plane.store.begin() as tx:
        tx.vms.update(replace(plane.services.vms.get("default", "train"), addresses=("192.0.2.7",)))
    plane.services.guests.provision("default", "train", ("guest_licence",), secrets={"licence_token": PLANTED})
    waits = _kept(tmp_path)
    assert b"guest_licence" in waits
    plane.engine.drain()
    assert plane.services.guests.get("default", "train").results[0].role == "guest_licence"
    assert PLANTED.encode() not in waits + _kept(tmp_path)
    assert PLANTED not in _rows(plane.store) + caplog.text


def _options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from parameter.opts
    for child in getattr(command, "commands", {}).values():
        yield from _options(child)


def test_no_option_takes_a_secret_so_none_can_stand_in_the_process_list() -> None:
    named = {option for name, entry in ENTRIES.items() for option in _options(load(name, entry))}
    suspicious = {one for one in named if any(word in one for word in ("password", "secret", "--token", "bearer"))}
    assert {one for one in suspicious if not one.endswith("-file")} == set()
