# SPDX-License-Identifier: Apache-2.0
"""What is wanted of a VM is stored

Until now it was told from the kind of the last operation.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_LEAVES = {
    "create_vm": "running",
    "preempt_for_vm": "running",
    "start_vm": "running",
    "start_freed_vm": "running",
    "create_stopped_vm": "stopped",
    "stop_vm": "stopped",
    "free_vm": "stopped",
    "clean_up": "stopped",
    "delete_vm": "absent",
}
_vms = sa.table("vms", *(sa.column(name, sa.String) for name in ("id", "state", "operation", "wanted")))
_operations = sa.table("operations", *(sa.column(name, sa.String) for name in ("id", "kind", "state")))


def upgrade() -> None:
    # The default stays: SQLite takes it away by making the table anew, and claims refer to its rows meanwhile.
    op.add_column("vms", sa.Column("wanted", sa.String(length=10), nullable=False, server_default="stopped"))
    last = sa.select(_vms.c.id, _vms.c.state, _operations.c.kind, _operations.c.state.label("ended"))
    connection = op.get_bind()
    for row in connection.execute(last.outerjoin(_operations, _operations.c.id == _vms.c.operation)).all():
        wanted = _wanted(row.state, row.kind, row.ended)
        connection.execute(sa.update(_vms).where(_vms.c.id == row.id).values(wanted=wanted))


def downgrade() -> None:
    op.drop_column("vms", "wanted")


def _wanted(state: str, kind: str | None, ended: str | None) -> str:
    """What was undone left it as it was; what has not ended, or got stuck, is still wanted."""
    if kind in _LEAVES and ended != "undone":
        return _LEAVES[kind]
    return "stopped" if state == "stopped" else "running"
