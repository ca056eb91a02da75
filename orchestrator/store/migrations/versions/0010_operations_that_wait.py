# SPDX-License-Identifier: Apache-2.0
"""Operations that wait for others"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("operations", sa.Column("waits_for", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    op.drop_column("operations", "waits_for")
