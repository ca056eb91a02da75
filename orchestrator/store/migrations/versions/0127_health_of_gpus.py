# SPDX-License-Identifier: Apache-2.0
"""Health of GPUs, and their models, of which shares are counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0127"
down_revision = "0126"


def upgrade() -> None:
    op.add_column("gpus", sa.Column("health", sa.JSON))
    op.add_column("gpus", sa.Column("model", sa.Text))


def downgrade() -> None:
    op.drop_column("gpus", "model")
    op.drop_column("gpus", "health")
