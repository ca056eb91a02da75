# SPDX-License-Identifier: Apache-2.0
"""Offerings that a site adds"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "offerings",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_offerings")),
    )


def downgrade() -> None:
    op.drop_table("offerings")
