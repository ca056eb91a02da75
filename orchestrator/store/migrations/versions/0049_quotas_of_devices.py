# SPDX-License-Identifier: Apache-2.0
"""What quotas called gpus is called devices, and cards that VMs have whole are counted

What is counted is written here as it was when this schema came (core/tenancy/quota.py), so that it stays the same step.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None

_vms = sa.table("vms", sa.column("tenant"), sa.column("devices", sa.JSON), sa.column("freed"))
_quotas, _usage = (
    sa.table(name, sa.column("tenant"), sa.column("resource"), sa.column(amount))
    for name, amount in (("quotas", "amount"), ("tenant_usage", "used"))
)
_WHOLE: Final = "whole-gpus"


def upgrade() -> None:
    _rename("gpus", "devices")
    used = Counter[tuple[str, str]]()
    for vm in op.get_bind().execute(sa.select(_vms).where(_vms.c.freed.is_(None))):
        for device in vm.devices:
            if device["kind"] == "passthrough":
                board = device["type_name"].partition(" ")[2]
                used.update({(vm.tenant, _WHOLE): 1, (vm.tenant, f"{_WHOLE}:{board}"): 1})
    rows = [{"tenant": tenant, "resource": resource, "used": amount} for (tenant, resource), amount in used.items()]
    if rows:
        op.get_bind().execute(sa.insert(_usage), rows)


def downgrade() -> None:
    for table in (_quotas, _usage):
        op.execute(sa.delete(table).where(table.c.resource.startswith(_WHOLE)))
    _rename("devices", "gpus")


def _rename(old: str, new: str) -> None:
    for table in (_quotas, _usage):
        renamed = new + sa.func.substr(table.c.resource, len(old) + 1)
        of_it = sa.or_(table.c.resource == old, table.c.resource.startswith(f"{old}:"))
        op.execute(sa.update(table).where(of_it).values(resource=renamed))
