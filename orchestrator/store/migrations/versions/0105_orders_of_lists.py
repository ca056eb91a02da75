# SPDX-License-Identifier: Apache-2.0
"""Indexes for each order of the lists of VMs and of operations."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0105"
down_revision = "0104"
_ORDERS = ("name", "state", "profile_lower", "vcpus", "memory_mib", "lease_end", "created_at", "host")
_COLUMNS: tuple[tuple[str, Any, str], ...] = (
    ("profile_lower", sa.String(63), ""),
    ("vcpus", sa.Integer, "0"),
    ("memory_mib", sa.Integer, "0"),
)
_OPERATIONS = ("created_at", "kind", "state", "subject_name")


def upgrade() -> None:
    for name, kind, nothing in _COLUMNS:
        op.add_column("vms", sa.Column(name, kind, nullable=False, server_default=nothing))
    vms = sa.table("vms", sa.column("spec", sa.JSON), *(sa.column(name, kind) for name, kind, _ in _COLUMNS))
    spec = vms.c.spec
    values = {
        "profile_lower": sa.func.lower(spec["profile"].as_string()),
        "vcpus": spec["vcpus"].as_integer(),
        "memory_mib": spec["memory_mib"].as_integer(),
    }
    op.execute(vms.update().values(values))
    op.drop_index("ix_vms_lease_end", "vms")
    for name in _ORDERS:
        op.create_index(f"ix_vms_{name}", "vms", list(dict.fromkeys((name, "tenant", "name"))))
    for name in ("state", "subject_name"):
        op.drop_index(f"ix_operations_{name}", "operations")
    for name in _OPERATIONS:
        op.create_index(f"ix_operations_{name}", "operations", [name, "id"])


def downgrade() -> None:
    for name in _OPERATIONS:
        op.drop_index(f"ix_operations_{name}", "operations")
    for name in ("state", "subject_name"):
        op.create_index(f"ix_operations_{name}", "operations", [name])
    for name in _ORDERS:
        op.drop_index(f"ix_vms_{name}", "vms")
    op.create_index("ix_vms_lease_end", "vms", ["lease_end"])
    for name, *_ in _COLUMNS:
        op.drop_column("vms", name)
