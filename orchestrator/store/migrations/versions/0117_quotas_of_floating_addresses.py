# SPDX-License-Identifier: Apache-2.0
"""Floating addresses and those of ways out count as addresses of their tenants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0117"
down_revision = "0116"
_networks = sa.table("networks", sa.column("name"), sa.column("overlay", sa.JSON))
_CHANGE = """
INSERT INTO tenant_usage (tenant, resource, used) VALUES (:tenant, 'addresses', :more)
ON CONFLICT (tenant, resource) DO UPDATE SET used = tenant_usage.used + excluded.used
"""


def _tenants(database: sa.Connection) -> Iterator[str]:
    """Of each such address."""
    for (tenant,) in database.execute(sa.text("SELECT tenant FROM floating_addresses")):
        yield tenant
    for network in database.execute(sa.select(_networks)):
        if (network.overlay or {}).get("out"):
            yield network.name.rpartition(".")[0]


def _change(sign: int) -> None:
    database = op.get_bind()
    for tenant, number in Counter(_tenants(database)).items():
        database.execute(sa.text(_CHANGE), {"tenant": tenant, "more": sign * number})


def upgrade() -> None:
    _change(1)


def downgrade() -> None:
    _change(-1)
