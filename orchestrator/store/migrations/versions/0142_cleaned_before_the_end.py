# SPDX-License-Identifier: Apache-2.0
"""How a piece of a GPU was cleaned when a device was removed whose claim went on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0142"
down_revision = "0141"


def upgrade() -> None:
    op.add_column("slot_claims", sa.Column("cleaned", sa.String(20)))


def downgrade() -> None:
    op.drop_column("slot_claims", "cleaned")
