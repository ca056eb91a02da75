# SPDX-License-Identifier: Apache-2.0
"""Somebody who may write to the database forges, changes or removes what is on record: it is noticed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pysqlite3 import dbapi2 as sqlite
from starlette.testclient import TestClient

from orchestrator.adapters.state.directory import AuditHead
from orchestrator.core.errors import VgpuctlError
from orchestrator.services.audit import AuditService
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import ControlPlane, create_vm, plane_with

FORGED = "INSERT INTO audit (at, actor, action, subject, outcome) VALUES (1, 'uid:0', 'x', 'y', 'done')"
FIELDS = ("at = at + 1", "actor = 'uid:1'", "action = 'x'", "subject = 'x'", "outcome = 'x'")
CUT = """DELETE FROM audit WHERE sequence >= 4; UPDATE meta SET value =
    (SELECT '3:' || seal FROM audit WHERE sequence = 3) WHERE key = 'audit_head'"""
AGAIN = """INSERT INTO audit (at, actor, action, subject, outcome, proof)
    SELECT at, actor, action, subject, outcome, proof FROM audit WHERE sequence = 2"""
ANOTHERS = """UPDATE audit SET proof = (SELECT proof FROM audit WHERE sequence = 1)
    WHERE sequence = (SELECT max(sequence) FROM audit)"""
SEALED = (
    *(f"UPDATE audit SET {field} WHERE sequence = {number}" for field in FIELDS for number in (1, 4, 8)),
    *(f"DELETE FROM audit WHERE sequence = {number}" for number in (1, 4, 8)),
    *(f"DELETE FROM audit WHERE sequence >= {number}" for number in (1, 4, 8)),
    "DELETE FROM audit", "DELETE FROM audit; DELETE FROM meta WHERE key = 'audit_head'",
    "UPDATE audit SET seal = NULL", "UPDATE audit SET seal = seal || '0'",
    "UPDATE audit SET proof = NULL, seal = NULL WHERE sequence = 4", "UPDATE audit SET proof = 'x' WHERE sequence = 4",
    "UPDATE audit SET proof = 'é' WHERE sequence = 4", "UPDATE audit SET seal = 'é' WHERE sequence = 4", CUT,
)  # fmt: skip
UNSEALED = (
    *(f"UPDATE audit SET {field} WHERE sequence = (SELECT max(sequence) FROM audit)" for field in FIELDS),
    "DELETE FROM audit WHERE seal IS NULL",
    "DELETE FROM audit WHERE sequence = (SELECT max(sequence) FROM audit)",
    "UPDATE audit SET proof = NULL WHERE sequence = (SELECT max(sequence) FROM audit)",
    ANOTHERS,
    FORGED,
    FORGED.replace("outcome)", "outcome, proof)").replace("'done')", "'done', 'aa')"),
    AGAIN,
)  # fmt: skip


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, "t4") as made:
        yield made


def _audit(plane: ControlPlane, tmp_path: Path) -> AuditService:
    (tmp_path / "secrets").mkdir(exist_ok=True)
    return replace(plane.services.tenancy.audit, noted=AuditHead(tmp_path))


def _tamper(tmp_path: Path, statements: str) -> None:
    with closing(sqlite.connect(str(tmp_path / "vgpuctl.sqlite"))) as database:
        database.executescript(statements)


def _filled(plane: ControlPlane, audit: AuditService) -> None:
    for number in range(8):
        plane.services.tenancy.tenants.create(f"t{number}")
    audit.seal()


@pytest.mark.parametrize("statements", SEALED)
def test_whatever_is_done_to_sealed_records_is_told(plane: ControlPlane, tmp_path: Path, statements: str) -> None:
    audit = _audit(plane, tmp_path)
    _filled(plane, audit)
    assert audit.verify().problems == ()
    _tamper(tmp_path, statements)
    assert audit.verify().problems
    audit.seal()
    plane.services.tenancy.tenants.create("later")
    audit.seal()
    assert audit.verify().problems, "sealing on makes it no better"


@pytest.mark.parametrize("statements", UNSEALED)
def test_whatever_is_done_before_the_seal_is_told(plane: ControlPlane, tmp_path: Path, statements: str) -> None:
    audit = _audit(plane, tmp_path)
    _filled(plane, audit)
    for number in range(3):
        plane.services.tenancy.tenants.create(f"later{number}")
    assert audit.verify().problems == ()
    _tamper(tmp_path, statements)
    audit.seal()
    lost = [one for one in audit.list(limit=5) if one.action == "audit"]
    assert audit.verify().problems or lost


def test_a_head_that_alone_was_removed_is_told_put_back_and_on_record(plane: ControlPlane, tmp_path: Path) -> None:
    audit = _audit(plane, tmp_path)
    _filled(plane, audit)
    _tamper(tmp_path, "DELETE FROM meta WHERE key = 'audit_head'")
    assert audit.verify().problems == ("the head of the chain is missing",)
    audit.seal()
    assert audit.verify().problems == ()
    assert audit.list(limit=1)[0].outcome == "found: the head of the chain was removed"


def test_records_of_an_older_version_are_sealed_once_and_never_again(plane: ControlPlane, tmp_path: Path) -> None:
    audit = _audit(plane, tmp_path)
    _tamper(tmp_path, "UPDATE audit SET proof = NULL; " + FORGED)
    plane.store.appended()
    assert audit.verify().problems == ()
    audit.seal()
    assert audit.verify().problems == ()
    _tamper(tmp_path, FORGED)
    audit.seal()
    assert len(audit.verify().problems) == 1


def test_a_thousand_forged_records_keep_no_true_one_from_its_seal(plane: ControlPlane, tmp_path: Path) -> None:
    audit = _audit(plane, tmp_path)
    _filled(plane, audit)
    _tamper(tmp_path, ";".join([FORGED] * 1000))
    plane.services.tenancy.tenants.create("later")
    audit.seal()
    assert [one.subject for one in audit.list(limit=1) if one.seal is not None] == ["later"]
    assert len(audit.verify().problems) == 2000  # none was written by a server, and all are before what was sealed


def test_cancelling_and_retrying_are_on_record_and_so_are_streams(plane: ControlPlane) -> None:
    started = plane.services.vms.create(create_vm())
    plane.services.operations.cancel(str(started.operation))
    assert plane.services.tenancy.audit.list(limit=1)[0].action == "cancel"
    plane.engine.drain()
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    plane.services.guest_access.open_console("default", "train").close()
    plane.services.guest_access.open_display("default", "train").close()
    plane.services.guest_access.open_tcp("default", "train", 22).close()
    plane.services.guest_access.console_log("default", "train", 100)
    records = plane.services.tenancy.audit.list(limit=4)
    assert [(one.action, one.subject) for one in records] == [
        ("read_console_log", "default/train"), ("open_tcp 22", "default/train"), ("open_display", "default/train"),
        ("open_console", "default/train"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "aimed"),
    [
        ("POST", "/v1/vms", {"name": "x", "tenant": "red"}, "/v1/vms of red"),
        ("DELETE", "/v1/vms/x?tenant=red", None, "/v1/vms/x of red"),
        ("POST", "/v1/vms/x/stop", None, "/v1/vms/x/stop of default"),
        ("POST", "/v1/tokens", {"tenant": "red\u202e", "role": "tenant-user"}, "/v1/tokens"),
        ("PUT", "/v1/tenants/red/members", {"subject": "uid:1", "role": "tenant-user"}, "/v1/tenants/red/members"),
        ("DELETE", "/v1/hosts/t4", None, "/v1/hosts/t4"),
    ],
)
def test_a_refusal_says_at_whose_things_it_was_aimed(
    plane: ControlPlane, method: str, path: str, body: object, aimed: str
) -> None:
    plane.services.tenancy.tenants.create("blue")
    token = plane.services.tenancy.tokens.create("blue", "tenant-user", None)[1]
    client = TestClient(real_app(plane), headers={"Authorization": f"Bearer {token}"})
    assert client.request(method, path, json=body).status_code in {403, 404}
    assert plane.services.tenancy.audit.list(limit=1)[0].subject == aimed


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/vms/plan", {"name": "x", "profile": "GRID T4-16Q", "image": "guest", "vcpus": 999}),
        ("/v1/hosts/t4/mig-layout/plan", {"entries": [{"devices": [0], "mig-enabled": True, "mig-devices": {}}]}),
    ],
)
def test_what_would_be_is_on_record_for_those_alone_who_may_not_ask(
    plane: ControlPlane, path: str, body: dict[str, object]
) -> None:
    before = plane.services.tenancy.audit.list(limit=1)
    refused = TestClient(real_app(plane)).post(path, json=body)
    assert refused.status_code == 400, refused.text
    assert plane.services.tenancy.audit.list(limit=1) == before
    token = plane.services.tenancy.tokens.create("default", "read-only", None)[1]
    reader = TestClient(real_app(plane), headers={"Authorization": f"Bearer {token}"})
    assert reader.post(path, json=body).status_code == 403
    assert plane.services.tenancy.audit.list(limit=1)[0].outcome == "refused: access.denied"


def test_a_console_that_was_refused_is_on_record(plane: ControlPlane) -> None:
    plane.services.tenancy.tenants.create("red")
    token = plane.services.tenancy.tokens.create("red", "tenant-user", None)[1]
    client = TestClient(real_app(plane), headers={"Authorization": f"Bearer {token}"})
    with pytest.raises(Exception) as refused, client.websocket_connect("/v1/vms/x/console?tenant=default"):
        raise AssertionError("it was opened")
    assert not isinstance(refused.value, AssertionError | VgpuctlError)
    record = plane.services.tenancy.audit.list(limit=1)[0]
    assert (record.subject, record.outcome) == ("/v1/vms/x/console of default", "refused: tenant.unknown")


def test_an_export_has_every_record_once_with_its_seal(plane: ControlPlane, tmp_path: Path) -> None:
    audit = _audit(plane, tmp_path)
    _filled(plane, audit)
    client = TestClient(real_app(plane))
    found: list[dict[str, object]] = []
    while more := client.get(f"/v1/audit/export?limit=3&after={found[-1]['sequence'] if found else 0}").json():
        found += more
    assert [one["sequence"] for one in found] == [one.sequence for one in reversed(audit.list(limit=1000))]
    assert all(one["seal"] and one["proof"] for one in found)
    assert json.dumps(found)
