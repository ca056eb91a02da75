# SPDX-License-Identifier: Apache-2.0
"""Networks over all hosts, and the addresses that VMs have there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0111"
down_revision = "0110"


def upgrade() -> None:
    op.add_column("networks", sa.Column("overlay", sa.JSON))
    op.add_column("vms", sa.Column("ports", sa.JSON))
    op.create_table(
        "port_addresses",
        sa.Column("network", sa.String(127), nullable=False),
        sa.Column("address", sa.String(15), nullable=False),
        sa.Column("vm", sa.String(36), nullable=False),
        sa.ForeignKeyConstraint(["vm"], ["vms.id"], name="fk_port_addresses_vm", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("network", "address", name="pk_port_addresses"),
    )
    op.create_index("ix_port_addresses_vm", "port_addresses", ["vm"])


def downgrade() -> None:
    op.drop_table("port_addresses")
    op.drop_column("vms", "ports")
    op.drop_column("networks", "overlay")
