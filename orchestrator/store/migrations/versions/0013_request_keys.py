# SPDX-License-Identifier: Apache-2.0
"""Requests under an idempotency key"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "request_keys",
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("actor", "key", name=op.f("pk_request_keys")),
    )
    op.create_index(op.f("ix_request_keys_at"), "request_keys", ["at"])


def downgrade() -> None:
    op.drop_index(op.f("ix_request_keys_at"), table_name="request_keys")
    op.drop_table("request_keys")
