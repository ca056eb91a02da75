# SPDX-License-Identifier: Apache-2.0
"""Backups that their policy could not remove, those that a VM which is gone has left, and indexes of what is asked for
by VM or volume."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0132"
down_revision = "0131"


def upgrade() -> None:
    op.add_column("backups", sa.Column("unremoved_at", sa.Float))
    op.execute("UPDATE backups SET policy = NULL WHERE policy IS NOT NULL AND vm NOT IN (SELECT id FROM vms)")
    op.drop_index("ix_backups_tenant", "backups")
    op.create_index("ix_backups_tenant", "backups", ["tenant", "policy", "vm"])
    op.create_index("ix_backups_vm", "backups", ["vm", "policy"])
    op.create_index("ix_volumes_snapshot_of", "volumes", ["snapshot_of"])


def downgrade() -> None:
    op.drop_index("ix_volumes_snapshot_of", "volumes")
    op.drop_index("ix_backups_vm", "backups")
    op.drop_index("ix_backups_tenant", "backups")
    op.create_index("ix_backups_tenant", "backups", ["tenant"])
    op.drop_column("backups", "unremoved_at")
