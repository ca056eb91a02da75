# SPDX-License-Identifier: Apache-2.0
"""Functions of hosts' network cards that VMs have"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hosts", sa.Column("rdma_nics", sa.Text(), nullable=True))
    op.add_column("vms", sa.Column("nic", sa.JSON(), nullable=True))
    op.add_column("host_claims", sa.Column("nic", sa.String(12), nullable=True))
    op.create_index(op.f("ix_host_claims_nic"), "host_claims", ["host", "nic"], unique=True)


def downgrade() -> None:
    op.drop_index(op.f("ix_host_claims_nic"), "host_claims")
    op.drop_column("host_claims", "nic")
    op.drop_column("vms", "nic")
    op.drop_column("hosts", "rdma_nics")
