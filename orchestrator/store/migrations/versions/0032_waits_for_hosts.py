# SPDX-License-Identifier: Apache-2.0
"""Operations wait for a host that is out of reach"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.add_column("operations", sa.Column("host_wait", sa.String(8), nullable=True))
    op.add_column("operations", sa.Column("host_wait_since", sa.Float(), nullable=True))
    op.create_index(op.f("ix_operations_host_wait"), "operations", ["host_wait"])


def downgrade() -> None:
    op.drop_index(op.f("ix_operations_host_wait"), "operations")
    op.drop_column("operations", "host_wait_since")
    op.drop_column("operations", "host_wait")
