# SPDX-License-Identifier: Apache-2.0
"""Whether a host may take VMs although nothing confines its QEMUs"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column("hosts", sa.Column("allow_unconfined", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("hosts", "allow_unconfined")
