# SPDX-License-Identifier: Apache-2.0
"""What reconciling found, with its history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "findings",
        sa.Column("host", sa.String(length=63), nullable=False),
        sa.Column("code", sa.String(length=40), nullable=False),
        sa.Column("subject", sa.String(length=160), nullable=False),
        sa.Column("vm", sa.String(length=36)),
        sa.Column("severity", sa.String(length=10), nullable=False),
        sa.Column("whose", sa.String(length=10), nullable=False),
        sa.Column("wanted", sa.Text(), nullable=False),
        sa.Column("seen", sa.Text(), nullable=False),
        sa.Column("repair", sa.JSON(none_as_null=True)),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("first_seen", sa.Float(), nullable=False),
        sa.Column("last_seen", sa.Float(), nullable=False),
        sa.Column("cleared_at", sa.Float()),
        sa.Column("operation", sa.String(length=36)),
        sa.ForeignKeyConstraint(["host"], ["hosts.name"], name=op.f("fk_findings_host"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("host", "code", "subject", name=op.f("pk_findings")),
    )


def downgrade() -> None:
    op.drop_table("findings")
