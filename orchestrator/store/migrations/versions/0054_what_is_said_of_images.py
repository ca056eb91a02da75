# SPDX-License-Identifier: Apache-2.0
"""Descriptions and labels of images and volumes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("images", "volumes"):
        op.add_column(table, sa.Column("about", sa.JSON(), nullable=True))


def downgrade() -> None:
    for table in ("images", "volumes"):
        op.drop_column(table, "about")
