# SPDX-License-Identifier: Apache-2.0
"""The stored database and hosts of an older version, as a control plane opens them."""

from __future__ import annotations

import base64
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from alembic import command
from sqlalchemy import MetaData, create_engine, insert

from orchestrator.sim.machine import SimulatedLedger
from orchestrator.store.database import alembic_config
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeGpu, FakeMachine, l40s, t4

HERE = Path(__file__).parent
SITE = "site"


def landed_control_plane(state: Path, url: str) -> ControlPlane:
    """``url``: of an empty database."""
    kept = landed_database(url)
    plane = control_plane(state, hosts=landed_hosts(), url=url)
    plane.ids.count = kept["drawn"]
    plane.world.clock.sleep(kept["clock"] - plane.world.clock.now())
    return plane


def landed_database(url: str, site: str = SITE) -> dict[str, Any]:
    """Fill the empty database as the older version left it; what is known of its clock and its ids."""
    kept: dict[str, Any] = json.loads((HERE / "database.json").read_text())
    kept["tables"]["meta"] = [{"key": "site", "value": site}]
    _restore(url, kept["revision"], kept["tables"])
    return kept


def landed_hosts(site: str = SITE) -> FakeHosts:
    """What was on the hosts then."""
    machines = json.loads((HERE / "machines.json").read_text())
    made = {
        f"{T4_HOST}.test": _machine(machines[f"{T4_HOST}.test"], t4),
        f"{L40S_HOST}.test": _machine(machines[f"{L40S_HOST}.test"], l40s),
    }
    for machine in made.values():
        machine.ledger.site = site
    return FakeHosts(made, site)


def _restore(url: str, revision: str, tables: dict[str, list[dict[str, Any]]]) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), revision)
        then = MetaData()
        then.reflect(connection)
        for table in then.sorted_tables:
            counted = {column.name for column in table.primary_key if column.autoincrement is True}  # by the database
            for row in tables.get(table.name, []):
                values = {name: _value(stored) for name, stored in row.items() if name not in counted}
                connection.execute(insert(table).values(values))
    engine.dispose()


def _value(stored: Any) -> Any:
    return base64.b64decode(stored["base64"]) if isinstance(stored, dict) and set(stored) == {"base64"} else stored


def _machine(kept: dict[str, Any], gpu: Any) -> FakeMachine:
    sets = {field.name for field in fields(FakeMachine) if "set" in str(field.type)}
    plain: dict[str, Any] = {name: set(value) if name in sets else value for name, value in kept.items()}
    for name in ("mdevs", "vf_types", "domains", "volumes"):
        plain[name] = {key: tuple(value) for key, value in kept[name].items()}
    plain["gpus"] = [_gpu(one, gpu(one["address"])) for one in kept["gpus"]]
    plain["ledger"] = SimulatedLedger(site=plain.pop("site"), attempts=plain.pop("attempts"))
    return FakeMachine(**{**plain, "managed": tuple(kept["managed"])})


def _gpu(kept: dict[str, Any], gpu: FakeGpu) -> FakeGpu:
    gpu.enabled = kept["enabled"]
    return gpu
