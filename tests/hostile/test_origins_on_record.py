# SPDX-License-Identifier: Apache-2.0
"""The audit says from where and with what a request came, and what a client says of itself does no harm there."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from pysqlite3 import dbapi2 as sqlite3
from starlette.testclient import TestClient

from orchestrator.core.tenancy.audit import AuditRecord
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import ControlPlane, plane_with

NO_ORIGIN: Final = "source = NULL, interface = NULL, user_agent = NULL"


def _newest(plane: ControlPlane, agent: str, *, refused: bool = False) -> AuditRecord:
    body = {"name": "A;b" if refused else f"t{len(plane.services.tenancy.audit.list(limit=1000))}"}
    TestClient(real_app(plane)).post("/v1/tenants", json=body, headers={b"user-agent": agent.encode("latin-1")})
    return plane.services.tenancy.audit.list(limit=1)[0]


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize(
    ("agent", "interface"),
    [
        ("vgpuctl-cli/0.1.0", "cli"), ("vgpuctl-ansible/0.1.0", "ansible"), ("vgpuctl-python/9", "python"),
        ("curl/8.0", "api"), ("", "api"), ("vgpuctl-clix/1", "api"), ("a\x1b[2J\u00e9" + "x" * 5000, "api"),
    ],
)  # fmt: skip
def test_every_record_says_from_where_and_with_what(tmp_path: Path, agent: str, interface: str, refused: bool) -> None:
    with plane_with(tmp_path) as plane:
        record = _newest(plane, agent, refused=refused)
        assert (record.source, record.interface) == ("unix pid 1", interface)
        assert record.user_agent is not None
        assert record.user_agent.isprintable()
        assert record.user_agent.isascii()
        assert len(record.user_agent) <= 120
        told = TestClient(real_app(plane)).get("/v1/audit?limit=1").json()[0]
        assert (told["source"], told["interface"]) == (record.source, interface)


def _changed(state: Path, sequence: int, change: str, to: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Behind the server's back. What was there before."""
    with closing(sqlite3.connect(state / "vgpuctl.sqlite")) as database:
        columns = "select source, interface, user_agent from audit where sequence = ?"
        kept: tuple[str, ...] = database.execute(columns, (sequence,)).fetchone()
        database.execute(f"update audit set {change} where sequence = ?", (*to, sequence))
        database.commit()
    return kept


def test_a_changed_origin_is_told_and_older_records_stay_whole(tmp_path: Path) -> None:
    with plane_with(tmp_path) as plane:
        audit = plane.services.tenancy.audit
        plane.services.tenancy.tenants.create("by-the-server")  # no request: as records were before there were origins
        assert audit.list(limit=1)[0].source is None
        sequence = _newest(plane, "curl/8").sequence
        audit.seal()
        assert audit.verify().problems == ()
        for change in ("source = '192.0.2.9'", "user_agent = NULL", NO_ORIGIN):
            kept = _changed(tmp_path, sequence, change)
            assert audit.verify().problems
            _changed(tmp_path, sequence, "source = ?, interface = ?, user_agent = ?", kept)
        assert audit.verify().problems == ()
        with closing(sqlite3.connect(tmp_path / "vgpuctl.sqlite")) as database:
            database.execute("update audit set source = 'x' where source is null")
            database.commit()
        assert audit.verify().problems
