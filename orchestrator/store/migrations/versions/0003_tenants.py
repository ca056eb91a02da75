# SPDX-License-Identifier: Apache-2.0
"""Tenants, members, tokens; whoever has VMs already becomes a tenant"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tenants")),
    )
    op.create_table(
        "members",
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "subject", name=op.f("pk_members")),
    )
    op.create_index("ix_members_subject", "members", ["subject"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )
    op.create_index(op.f("ix_tokens_tenant"), "tokens", ["tenant"])
    op.execute("INSERT INTO tenants (name, created_at) SELECT tenant, min(created_at) FROM vms GROUP BY tenant")


def downgrade() -> None:
    op.drop_table("tokens")
    op.drop_table("members")
    op.drop_table("tenants")
