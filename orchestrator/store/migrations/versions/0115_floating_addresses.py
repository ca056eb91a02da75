# SPDX-License-Identifier: Apache-2.0
"""Floating addresses, and addresses of networks of kind ovn that no VM has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0115"
down_revision = "0114"


def upgrade() -> None:
    with op.batch_alter_table("port_addresses") as addresses:
        addresses.alter_column("vm", existing_type=sa.String(36), nullable=True)
    op.create_table(
        "floating_addresses",
        sa.Column("address", sa.String(15), nullable=False),
        sa.Column("network", sa.String(127), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("vm", sa.String(36), nullable=True),
        sa.Column("card_network", sa.String(127), nullable=True),
        sa.ForeignKeyConstraint(["vm"], ["vms.id"], name="fk_floating_addresses_vm", ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("address", name="pk_floating_addresses"),
    )
    op.create_index("ix_floating_addresses_tenant", "floating_addresses", ["tenant"])
    op.create_index("ix_floating_addresses_vm", "floating_addresses", ["vm"])


def downgrade() -> None:
    op.execute("DELETE FROM events WHERE noun = 'floating_address'")
    op.drop_table("floating_addresses")
    op.execute("DELETE FROM port_addresses WHERE vm IS NULL")
    with op.batch_alter_table("port_addresses") as addresses:
        addresses.alter_column("vm", existing_type=sa.String(36), nullable=False)
