# SPDX-License-Identifier: Apache-2.0
"""Controllers that share one database say that they live"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "controllers",
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("beats", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_controllers")),
    )


def downgrade() -> None:
    op.drop_table("controllers")
