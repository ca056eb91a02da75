# SPDX-License-Identifier: Apache-2.0
"""From where and with what an audited request came"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None
_COLUMNS = ("source", "interface", "user_agent")


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("audit", sa.Column(name, sa.Text, nullable=True))


def downgrade() -> None:
    for name in reversed(_COLUMNS):
        op.drop_column("audit", name)
