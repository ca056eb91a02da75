# SPDX-License-Identifier: Apache-2.0
"""Descriptions and labels of tenants and networks"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("tenants", "networks"):
        op.add_column(table, sa.Column("about", sa.JSON(), nullable=True))


def downgrade() -> None:
    for table in ("tenants", "networks"):
        op.drop_column(table, "about")
