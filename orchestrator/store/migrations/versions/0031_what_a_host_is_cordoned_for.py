# SPDX-License-Identifier: Apache-2.0
"""What of ours a host is cordoned for"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.add_column("hosts", sa.Column("cordoned_for", sa.String(80), nullable=True))


def downgrade() -> None:
    op.drop_column("hosts", "cordoned_for")
