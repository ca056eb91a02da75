# SPDX-License-Identifier: Apache-2.0
"""A VM and its claim hold a list of devices

What operations that are not over hold of devices is rewritten with it, so that they are finished by this version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_vms = sa.table("vms", sa.column("id", sa.String), sa.column("devices", sa.JSON))
_operations = sa.table(
    "operations", sa.column("id", sa.String), sa.column("kind", sa.String), sa.column("inputs", sa.JSON)
)
_KINDS = ("start_freed_vm", "preempt_for_vm")
"""Whose inputs hold devices."""

Document = dict[str, Any]


def upgrade() -> None:
    op.execute("ALTER TABLE vms RENAME COLUMN device TO devices")
    _rewrite(_vms, "devices", lambda device: [_device(device)])
    _rewrite(_operations, "inputs", _inputs, _operations.c.kind.in_(_KINDS))
    with op.batch_alter_table("slot_claims") as batch:
        batch.add_column(sa.Column("device", sa.Integer(), nullable=False, server_default="0"))
    with op.batch_alter_table("slot_claims") as batch:
        batch.alter_column("device", server_default=None)
    with op.batch_alter_table("function_claims") as batch:
        batch.drop_constraint("uq_function_claims_vm", type_="unique")
        batch.add_column(sa.Column("device", sa.Integer(), nullable=False, server_default="0"))
        batch.create_unique_constraint("uq_function_claims_vm_device", ["vm", "device"])
    with op.batch_alter_table("function_claims") as batch:
        batch.alter_column("device", server_default=None)


def downgrade() -> None:
    """Of a VM with several devices the first stays."""
    op.execute("DELETE FROM function_claims WHERE device > 0")
    with op.batch_alter_table("function_claims") as batch:
        batch.drop_constraint("uq_function_claims_vm_device", type_="unique")
        batch.drop_column("device")
        batch.create_unique_constraint("uq_function_claims_vm", ["vm"])
    op.execute("DELETE FROM slot_claims WHERE device > 0")
    with op.batch_alter_table("slot_claims") as batch:
        batch.drop_column("device")
    _rewrite(_operations, "inputs", _inputs_before, _operations.c.kind.in_(_KINDS))
    _rewrite(_vms, "devices", lambda devices: _device_before(devices[0]))
    op.execute("ALTER TABLE vms RENAME COLUMN devices TO device")


def _rewrite(
    table: sa.TableClause, column: str, change: Callable[[Any], Any], where: sa.ColumnElement[bool] | None = None
) -> None:
    connection, query = op.get_bind(), sa.select(table.c.id, table.c[column])
    for key, document in connection.execute(query if where is None else query.where(where)).all():
        connection.execute(sa.update(table).where(table.c.id == key).values({column: change(document)}))


def _device(before: Document) -> Document:
    """Its name on the host is the mediated device's UUID, or the function that is passed through."""
    device = {key: value for key, value in before.items() if key != "mdev_uuid"}
    return {**device, "name": before.get("mdev_uuid") or before["parent"]}


def _device_before(device: Document) -> Document:
    before = {key: value for key, value in device.items() if key != "name"}
    return {**before, "mdev_uuid": device["name"] if device["name"] != device["parent"] else None}


def _inputs(before: Document) -> Document:
    inputs = dict(before)
    if "device" in inputs:
        inputs["devices"] = [_device(inputs.pop("device"))]
    if "claim" in inputs:
        claim = dict(inputs["claim"])
        claim["devices"] = [{**claim.pop("device"), "function": claim.pop("function")}]
        inputs["claim"] = claim
    return inputs


def _inputs_before(inputs: Document) -> Document:
    before = dict(inputs)
    if "devices" in before:
        before["device"] = _device_before(before.pop("devices")[0])
    if "claim" in before:
        claim = dict(before["claim"])
        device = dict(claim.pop("devices")[0])
        claim["function"] = device.pop("function")
        before["claim"] = {**claim, "device": device}
    return before
