# SPDX-License-Identifier: Apache-2.0
"""A network has a subnet of ours, or the bridge of hosts that it is on"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"

_ON_A_BRIDGE = sa.text("DELETE FROM networks WHERE subnet IS NULL")


def upgrade() -> None:
    with op.batch_alter_table("networks") as table:
        table.alter_column("subnet", existing_type=sa.String(18), nullable=True)
        table.add_column(sa.Column("uplink", sa.JSON()))


def downgrade() -> None:
    op.execute(_ON_A_BRIDGE)
    with op.batch_alter_table("networks") as table:
        table.drop_column("uplink")
        table.alter_column("subnet", existing_type=sa.String(18), nullable=False)
