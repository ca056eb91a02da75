# SPDX-License-Identifier: Apache-2.0
"""No two cards on a network of kind ovn have one hardware address; whose an address was that is kept for OVN."""

from __future__ import annotations

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0125"
down_revision = "0124"
_vms = sa.table("vms", sa.column("id"), sa.column("spec", sa.JSON))
_addresses = sa.table("port_addresses", sa.column("network"), sa.column("address"), sa.column("vm"), sa.column("mac"))


def upgrade() -> None:
    with op.batch_alter_table("port_addresses") as addresses:
        addresses.add_column(sa.Column("mac", sa.String(17)))
        addresses.add_column(sa.Column("gave_back", sa.String(63)))
        addresses.create_unique_constraint("uq_port_addresses_network_mac", ["network", "mac"])
    database, at, had = op.get_bind(), _addresses.c, set[tuple[str, str]]()
    rows = sa.select(at.network, at.address, at.vm, _vms.c.spec).join_from(_addresses, _vms, at.vm == _vms.c.id)
    for row in database.execute(rows.order_by(at.network, at.address)).all():
        networks = [row.spec["network"], *row.spec.get("more_networks", ())]
        mac = _mac(row.vm, networks.index(row.network))
        if (row.network, mac) not in had:  # of two that are alike already the second has none
            had.add((row.network, mac))
            its = at.network == row.network, at.address == row.address
            database.execute(sa.update(_addresses).where(*its).values(mac=mac))


def downgrade() -> None:
    with op.batch_alter_table("port_addresses") as addresses:
        addresses.drop_constraint("uq_port_addresses_network_mac", type_="unique")
        addresses.drop_column("gave_back")
        addresses.drop_column("mac")


def _mac(vm: str, card: int) -> str:
    """As libvirt and OVN were told."""
    digest = hashlib.sha256(f"mac {vm}{f' {card}' if card else ''}".encode()).hexdigest()
    return f"52:54:00:{digest[:2]}:{digest[2:4]}:{digest[4:6]}"
