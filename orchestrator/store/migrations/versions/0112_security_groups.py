# SPDX-License-Identifier: Apache-2.0
"""Security groups of tenants, and what they are on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0112"
down_revision = "0111"


def upgrade() -> None:
    op.create_table(
        "security_groups",
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("rules", sa.JSON, nullable=False),
        sa.Column("about", sa.JSON(none_as_null=True)),
        sa.PrimaryKeyConstraint("tenant", "name", name="pk_security_groups"),
    )
    op.create_table(
        "security_group_uses",
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("vm", sa.String(36), sa.ForeignKey("vms.id", ondelete="CASCADE")),
        sa.Column("network", sa.String(127), sa.ForeignKey("networks.name", ondelete="CASCADE")),
        sa.ForeignKeyConstraint(
            ("tenant", "name"), ("security_groups.tenant", "security_groups.name"), ondelete="CASCADE"
        ),
    )
    op.create_index("ix_security_group_uses_vm", "security_group_uses", ["vm"])
    op.create_index("ix_security_group_uses_network", "security_group_uses", ["network"])


def downgrade() -> None:
    op.execute("DELETE FROM events WHERE noun = 'security_group'")
    op.drop_table("security_group_uses")
    op.drop_table("security_groups")
