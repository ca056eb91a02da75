# SPDX-License-Identifier: Apache-2.0
"""The drivers that a site means to have, and those that images carry"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.create_table(
        "driver_lock",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_driver_lock")),
    )
    op.add_column("images", sa.Column("guest_driver", sa.String(length=40), nullable=True))


def downgrade() -> None:
    op.drop_column("images", "guest_driver")
    op.drop_table("driver_lock")
