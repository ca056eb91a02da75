# SPDX-License-Identifier: Apache-2.0
"""How often vCPUs and memory of a host may be promised, and labels, for each host"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column("hosts", sa.Column("vcpu_overcommit", sa.Float(), nullable=True))
    op.add_column("hosts", sa.Column("memory_overcommit", sa.Float(), nullable=True))
    op.add_column("hosts", sa.Column("labels", sa.JSON(), nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("hosts", "labels")
    op.drop_column("hosts", "memory_overcommit")
    op.drop_column("hosts", "vcpu_overcommit")
