# SPDX-License-Identifier: Apache-2.0
"""Backups of VMs' disks, and the targets that hold them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0126"
down_revision = "0125"


def upgrade() -> None:
    op.create_table(
        "backup_targets",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_backup_targets"),
    )
    op.create_table(
        "backups",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("target", sa.String(63), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("vm", sa.String(36), nullable=False),
        sa.Column("vm_name", sa.String(63), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("taken_of", sa.String(10)),
        sa.Column("added_bytes", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_backups"),
        sa.ForeignKeyConstraint(["target"], ["backup_targets.name"], name="fk_backups_target_backup_targets"),
    )
    op.create_index("ix_backups_tenant", "backups", ["tenant"])


def downgrade() -> None:
    op.drop_table("backups")
    op.drop_table("backup_targets")
