# SPDX-License-Identifier: Apache-2.0
"""Networks, addresses, security groups and their rules are counted of each tenant."""

from __future__ import annotations

from collections import Counter

import sqlalchemy as sa
from alembic import op

revision = "0116"
down_revision = "0115"
_RESOURCES = ("networks", "addresses", "groups", "rules")
_usage = sa.table("tenant_usage", sa.column("tenant"), sa.column("resource"), sa.column("used"))
_groups = sa.table("security_groups", sa.column("tenant"), sa.column("name"), sa.column("rules", sa.JSON))


def upgrade() -> None:
    database, held = op.get_bind(), Counter[tuple[str, str]]()
    for (name,) in database.execute(sa.text("SELECT name FROM networks")):
        tenant, dot, _ = name.rpartition(".")
        held[tenant, "networks"] += bool(dot)
    ports = "SELECT vms.tenant FROM port_addresses JOIN vms ON vms.id = port_addresses.vm"
    for (tenant,) in database.execute(sa.text(ports)):
        held[tenant, "addresses"] += 1
    for group in database.execute(sa.select(_groups)):
        held[group.tenant, "groups"] += group.name != "default"
        held[group.tenant, "rules"] += len(group.rules)
    rows = [{"tenant": tenant, "resource": resource, "used": used} for (tenant, resource), used in held.items() if used]
    if rows:
        op.bulk_insert(_usage, rows)


def downgrade() -> None:
    op.execute(_usage.delete().where(_usage.c.resource.in_(_RESOURCES)))
