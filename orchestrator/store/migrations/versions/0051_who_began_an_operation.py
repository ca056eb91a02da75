# SPDX-License-Identifier: Apache-2.0
"""Who began an operation, and why the server did"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operations", sa.Column("asked", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("operations", "asked")
