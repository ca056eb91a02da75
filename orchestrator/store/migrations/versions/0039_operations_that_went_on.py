# SPDX-License-Identifier: Apache-2.0
"""How many of an operation's runs went on after a wait for its guest"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    op.add_column("operations", sa.Column("went_on", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("operations", "went_on")
