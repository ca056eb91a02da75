# SPDX-License-Identifier: Apache-2.0
"""Hosts that may be newer than the database, because it was restored"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hosts", sa.Column("restored", sa.String(8), nullable=True))


def downgrade() -> None:
    op.drop_column("hosts", "restored")
