# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from orchestrator.store import database
from orchestrator.store.database import alembic_config, newest_revision
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import Crash, no_fault
from tests.fakes.versions import migrations_of, tree_with_a_later_schema

MIGRATIONS = Path(database.__file__).with_name("migrations")
REVISIONS = sorted(path.name[:4] for path in (MIGRATIONS / "versions").glob("0*.py"))
"""Every schema that a version of the program has ever left behind, and this one's."""
ON_POSTGRESQL = {REVISIONS[0], REVISIONS[len(REVISIONS) // 2], REVISIONS[-1]}


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, backend: str) -> str:
    if backend == "postgresql":
        return str(request.getfixturevalue("postgres").database())
    return f"sqlite:///{tmp_path / 'vgpuctl.sqlite'}"


def newer_and_back(connection: Connection, tree: Path, revision: str) -> None:
    """The database as a version with ``revision`` has left it, after a newer one than this had it."""
    config = alembic_config(connection)
    config.set_main_option("script_location", str(migrations_of(tree_with_a_later_schema(tree))))
    command.upgrade(config, "head")
    (later,) = connection.execute(text("SELECT later FROM hosts JOIN racks ON host = name AND rack = later")).scalars()
    assert later == f"{T4_HOST}.test"
    command.downgrade(config, revision)


def crash(_number: int, moment: str, name: str) -> BaseException | None:
    return Crash() if (moment, name) == ("after", "MakeVgpu") else None


def begun(plane: ControlPlane, name: str) -> str:
    """Killed after its device was made."""
    plane.hosts.strike = crash
    operation = str(plane.services.vms.create(create_vm(name)).operation)
    with pytest.raises(Crash):
        plane.engine.drain()
    plane.hosts.strike = no_fault
    return operation


@pytest.mark.parametrize(
    ("revision", "backend"),
    [(revision, "sqlite") for revision in REVISIONS] + [(revision, "postgresql") for revision in sorted(ON_POSTGRESQL)],
)
def test_what_another_version_has_stored_and_begun_is_kept_and_finished(
    tmp_path: Path, url: str, revision: str
) -> None:
    old = control_plane(tmp_path, url=url)
    old.add_host(T4_HOST)
    old.services.vms.create(create_vm("kept"))
    old.engine.drain()
    operation = begun(old, "begun")
    with old.store.read() as tx:
        stored = (tx.hosts.get(T4_HOST), tx.vms.list(), tx.claims.of_host(T4_HOST), tx.images.list())
        secrets = [tx.secrets.get(str(vm.spec.user_data)) for vm in tx.vms.list()]
        ended = [one.id for one in tx.operations.list()]
    with old.store._connections.engine.connect() as connection, connection.begin():
        newer_and_back(connection, tmp_path / "newer", revision)
    old.store.close()

    new = control_plane(tmp_path, hosts=old.hosts, url=url)
    new.ids.count = old.ids.count
    with new.store.read() as tx:
        assert (tx.hosts.get(T4_HOST), tx.vms.list(), tx.claims.of_host(T4_HOST), tx.images.list()) == stored
        assert [tx.secrets.get(str(vm.spec.user_data)) for vm in tx.vms.list()] == secrets
        assert [one.id for one in tx.operations.list()] == ended
        assert [one.id for one in tx.operations.list(unfinished=True)] == [operation]
    new.engine.submit(operation)
    new.engine.drain()
    assert new.services.operations.get(operation).state == "done"
    assert {vm.spec.name: vm.state for vm in new.services.vms.list(None)} == {"begun": "running", "kept": "running"}
    for name in ("begun", "kept"):
        new.services.vms.delete("default", name)
    new.engine.drain()
    machine = new.machine(T4_HOST)
    assert (machine.mdevs, machine.domains, machine.volumes) == ({}, {}, {})
    assert new.services.vms.list(None) == ()
    new.store.close()


def test_the_names_of_the_migrations_say_which_one_is_the_newest() -> None:
    heads = ScriptDirectory(str(MIGRATIONS)).get_heads()
    assert heads == [newest_revision()]
