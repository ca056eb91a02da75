# SPDX-License-Identifier: Apache-2.0
"""Hosts are counted by their states without being read."""

from __future__ import annotations

from alembic import op

revision = "0106"
down_revision = "0105"


def upgrade() -> None:
    op.create_index("ix_hosts_state", "hosts", ["state", "cordoned"])


def downgrade() -> None:
    op.drop_index("ix_hosts_state", "hosts")
