# SPDX-License-Identifier: Apache-2.0
"""Ids of secrets may hold the name of a host"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    with op.batch_alter_table("secrets") as table:
        table.alter_column("id", existing_type=sa.String(length=36), type_=sa.String(length=100), nullable=False)


def downgrade() -> None:
    op.execute("DELETE FROM secrets WHERE length(id) > 36")
    with op.batch_alter_table("secrets") as table:
        table.alter_column("id", existing_type=sa.String(length=100), type_=sa.String(length=36), nullable=False)
