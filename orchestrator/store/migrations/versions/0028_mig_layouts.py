# SPDX-License-Identifier: Apache-2.0
"""MIG layouts that operators asked for, for each GPU"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.add_column("gpus", sa.Column("mig_layout", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("gpus", "mig_layout")
