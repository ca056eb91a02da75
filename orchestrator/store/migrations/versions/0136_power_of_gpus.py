# SPDX-License-Identifier: Apache-2.0
"""Limits of power of GPUs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0136"
down_revision = "0135"


def upgrade() -> None:
    op.add_column("gpus", sa.Column("power", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    op.drop_column("gpus", "power")
