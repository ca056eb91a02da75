# SPDX-License-Identifier: Apache-2.0
"""Leases of VMs, and policies of tenants"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("vms", sa.Column("lease_end", sa.Float(), nullable=True))
    op.add_column("vms", sa.Column("freed", sa.String(length=20), nullable=True))
    op.create_index(op.f("ix_vms_lease_end"), "vms", ["lease_end"])
    op.create_table(
        "policies",
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", name=op.f("pk_policies")),
    )


def downgrade() -> None:
    op.drop_table("policies")
    op.drop_index(op.f("ix_vms_lease_end"), table_name="vms")
    op.drop_column("vms", "freed")
    op.drop_column("vms", "lease_end")
