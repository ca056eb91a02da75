# SPDX-License-Identifier: Apache-2.0
"""Upgrades, policies and webhooks of the schema before maintenances were declared, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from alembic import command
from sqlalchemy import Connection, inspect, text

from orchestrator.core.event import EventFilter
from orchestrator.core.maintenance.maintenance import HostTurn, Maintenance
from orchestrator.core.vms.lease import TenantPolicy
from orchestrator.store.database import Store, alembic_config
from tests.fakes.new_database import engine_beside


def members(connection: Connection, table: str) -> dict[str, Any]:
    return dict(connection.execute(text(f"SELECT * FROM {table}")).mappings().one())


def test_an_upgrade_and_a_policy_are_as_before_after_the_way_down_and_up(store: Store, url: str) -> None:
    upgrade = Maintenance(
        id="u", act="upgrade", version="580.95.02", policy="wait", max_unavailable=2, canary=1, failure_budget=1,
        created_at=1.0, starts_at=1.0, state="cancelled", hosts=(HostTurn(host="lab1"),),
    )  # fmt: skip
    with store.begin() as tx:
        tx.maintenances.add(upgrade)
        tx.maintenances.add(replace(upgrade, id="d", act="drain", version=None, policy="move"))
        tx.policies.put("red", TenantPolicy(maintenance="wait"))
    engine = engine_beside(url)
    with engine.begin() as connection:
        command.downgrade(alembic_config(connection), "0106")
        assert "maintenances" not in inspect(connection).get_table_names()
        assert '"aborted"' in str(members(connection, "driver_upgrades")).replace("'", '"')
        assert "driver_upgrade" in str(members(connection, "policies"))
        command.upgrade(alembic_config(connection), "head")
    engine.dispose()
    with store.begin() as tx:
        assert tx.maintenances.list(most=9) == (upgrade,), "there was no drain before"
        assert tx.policies.get("red").maintenance == "wait"
        noted = tx.events.last(tx.events.newest(), EventFilter(nouns=frozenset({"maintenance"})), most=9)
        assert [event.change.change for event in noted] == ["created", "created"]
