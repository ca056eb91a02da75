# SPDX-License-Identifier: Apache-2.0
"""Policies of backups, what they did last for each VM, and which backups are theirs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0129"
down_revision = "0128"


def upgrade() -> None:
    op.create_table(
        "backup_policies",
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("target", sa.String(63), nullable=False),
        sa.Column("every_s", sa.Integer, nullable=False),
        sa.Column("window", sa.String(40)),
        sa.Column("keep_daily", sa.Integer, nullable=False),
        sa.Column("keep_weekly", sa.Integer, nullable=False),
        sa.Column("keep_monthly", sa.Integer, nullable=False),
        sa.Column("verify_every_s", sa.Integer),
        sa.Column("vms", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", name="pk_backup_policies"),
        sa.ForeignKeyConstraint(["target"], ["backup_targets.name"], name="fk_backup_policies_target_backup_targets"),
    )
    op.create_table(
        "backup_turns",
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("policy", sa.String(63), nullable=False),
        sa.Column("vm", sa.String(36), nullable=False),
        sa.Column("tried_at", sa.Float, nullable=False),
        sa.Column("operation", sa.String(36)),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("tenant", "policy", "vm", name="pk_backup_turns"),
        sa.ForeignKeyConstraint(
            ["tenant", "policy"], ["backup_policies.tenant", "backup_policies.name"],
            name="fk_backup_turns_tenant_policy_backup_policies", ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["vm"], ["vms.id"], name="fk_backup_turns_vm_vms", ondelete="CASCADE"),
    )  # fmt: skip
    op.create_index("ix_backup_turns_vm", "backup_turns", ["vm"])
    op.add_column("backups", sa.Column("policy", sa.String(63)))
    op.add_column("backups", sa.Column("verified_at", sa.Float))


def downgrade() -> None:
    op.drop_column("backups", "verified_at")
    op.drop_column("backups", "policy")
    op.drop_table("backup_turns")
    op.drop_table("backup_policies")
