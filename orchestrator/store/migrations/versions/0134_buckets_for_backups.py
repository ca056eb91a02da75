# SPDX-License-Identifier: Apache-2.0
"""Targets of backups that are reached by S3."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0134"
down_revision = "0133"


def upgrade() -> None:
    for name, kind in (("s3", sa.Text()), ("region", sa.String(63)), ("ca", sa.Text())):
        op.add_column("backup_targets", sa.Column(name, kind, nullable=False, server_default=""))


def downgrade() -> None:
    for name in ("s3", "region", "ca"):
        op.drop_column("backup_targets", name)
