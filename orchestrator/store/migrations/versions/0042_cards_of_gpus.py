# SPDX-License-Identifier: Apache-2.0
"""Which card each GPU is"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("gpus", sa.Column("uuid", sa.Text(), nullable=True))
    op.add_column("gpus", sa.Column("serial", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("gpus", "serial")
    op.drop_column("gpus", "uuid")
