# SPDX-License-Identifier: Apache-2.0
"""What is wanted of VMs that a driver upgrade has stopped is what their users said

An upgrade that was under way had written that they are wanted stopped, and remembered itself that they start again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

_UNDER_WAY = {"emptying", "swapping", "refilling"}
_upgrades = sa.table("driver_upgrades", sa.column("active", sa.Boolean()), sa.column("document", sa.JSON()))
_vms = sa.table("vms", *(sa.column(name, sa.Text()) for name in ("id", "wanted", "state", "freed")))


def upgrade() -> None:
    connection = op.get_bind()
    documents = connection.execute(sa.select(_upgrades.c.document).where(_upgrades.c.active)).scalars().all()
    hosts = (host for document in documents for host in document["hosts"] if host["phase"] in _UNDER_WAY)
    held = [vm for host in hosts for vm in host["vms"]]
    theirs = sa.and_(_vms.c.id.in_(held), _vms.c.state.in_(("stopping", "stopped")), _vms.c.freed.is_(None))
    connection.execute(sa.update(_vms).where(theirs, _vms.c.wanted == "stopped").values(wanted="running"))


def downgrade() -> None:
    """Versions before start those VMs whatever is wanted of them."""
