# SPDX-License-Identifier: Apache-2.0
"""Limits that were stored as gpus counted devices, and go on counting them."""

from __future__ import annotations

from dataclasses import replace

from alembic import command
from sqlalchemy import text

from orchestrator.core.gpu.device import Device
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.tenancy.tenant import Tenant
from orchestrator.store.database import Store
from orchestrator.store.schema import alembic_config
from tests.contract.store.test_store import GPU
from tests.contract.store.test_tenant_usage import of
from tests.fakes.recount import miscounted

THEN = {"gpus": 2, "gpus:T4": 1, "vms": 3}
NOW = {"devices": 2, "devices:T4": 1, "vms": 3}


def test_stored_limits_keep_their_meaning_and_cards_are_counted(store: Store) -> None:
    whole = Device(kind="passthrough", gpu=GPU, parent=GPU, type_name="NVIDIA T4", name=GPU)
    with store.begin() as tx:
        tx.tenants.add(Tenant(name="a", created_at=0.0))
        tx.vms.add(of("a", "piece"))
        tx.vms.add(replace(of("a", "card"), devices=(whole,)))
        tx.vms.add(replace(of("a", "stopped"), devices=(whole,)))
        tx.vms.deallocate("a-stopped", "lease_over", (whole,))
        for resource, amount in NOW.items():
            tx.quotas.put(Limit(tenant="a", resource=resource, amount=amount))
    with store._connections.engine.begin() as connection:
        command.downgrade(alembic_config(connection), "0048")
        stored = connection.execute(text("SELECT resource, amount FROM quotas"))
        assert {str(row[0]): row[1] for row in stored} == THEN
        command.upgrade(alembic_config(connection), "head")
    with store.read() as tx:
        assert {one.resource: one.amount for one in tx.quotas.list()} == NOW
        held = tx.quotas.used("a")
        assert (held["devices"], held["whole-gpus"], held["whole-gpus:T4"], held["vgpus"]) == (2, 1, 1, 1)
        assert list(miscounted(tx)) == []
