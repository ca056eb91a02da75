# SPDX-License-Identifier: Apache-2.0
"""Addresses on networks of kind ovn are of IPv6, too."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0118"
down_revision = "0117"


def upgrade() -> None:
    with op.batch_alter_table("port_addresses") as addresses:
        addresses.alter_column("address", existing_type=sa.String(15), type_=sa.String(39), existing_nullable=False)


def downgrade() -> None:
    op.execute("DELETE FROM port_addresses WHERE address LIKE '%:%'")
    with op.batch_alter_table("port_addresses") as addresses:
        addresses.alter_column("address", existing_type=sa.String(39), type_=sa.String(15), existing_nullable=False)
