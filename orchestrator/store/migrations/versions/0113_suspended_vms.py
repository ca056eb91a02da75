# SPDX-License-Identifier: Apache-2.0
"""VMs whose memory is on disk, and on what they ran."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0113"
down_revision = "0112"


def upgrade() -> None:
    op.add_column("vms", sa.Column("suspended_bytes", sa.BigInteger))
    op.create_table(
        "suspended_vms",
        sa.Column("vm", sa.String(36), nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("vm", name="pk_suspended_vms"),
        sa.ForeignKeyConstraint(["vm"], ["vms.id"], name="fk_suspended_vms_vm_vms", ondelete="CASCADE"),
    )


def downgrade() -> None:
    op.drop_table("suspended_vms")
    op.drop_column("vms", "suspended_bytes")
