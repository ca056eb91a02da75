# SPDX-License-Identifier: Apache-2.0
"""Images, networks, offerings, encrypted secrets and the time that has passed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Final

from sqlalchemy import bindparam, delete, func, insert, select, update

from orchestrator.adapters.store.rows import image_of, image_values, network_of, network_values, offering_of
from orchestrator.adapters.store.secret_box import BOUND, SecretBox, Unreadable
from orchestrator.adapters.store.statements import Statements, kept
from orchestrator.adapters.store.tables import audit, images, looks, meta, networks, offerings, secrets
from orchestrator.adapters.store.tenant_usage import SqlTenantUsage
from orchestrator.core.errors import Bug, Conflict, Fatal, NotFound
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.names import near
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.tenancy.quota import image_amounts
from orchestrator.core.vms.image import Image
from orchestrator.core.vms.network import Network, unknown_network

# Put together once, as that takes longer than asking.
_IMAGE: Final = kept(select(images).where(images.c.name == bindparam("its_name")))
_NETWORK: Final = kept(select(networks).where(networks.c.name == bindparam("its_name")))
_BRIDGED: Final = kept(select(networks).where(networks.c.subnet.is_(None)))
_OFFERINGS: Final = kept(select(offerings.c.document).order_by(offerings.c.name))
_MARK: Final = "time_passed"
_PUT_SECRET: Final = kept(insert(secrets))
_SECRET: Final = kept(select(secrets.c.blob).where(secrets.c.id == bindparam("its_id")))
_NO_SECRET: Final = kept(delete(secrets).where(secrets.c.id == bindparam("its_id")))


class SqlImages:
    def __init__(self, connection: Statements, tenants: SqlTenantUsage) -> None:
        self._db = connection
        self._tenants = tenants

    def add(self, image: Image) -> None:
        """:raises Conflict: ``image.exists``"""
        if self._db.execute(select(images.c.name).where(images.c.name == image.name)).one_or_none() is not None:
            raise Conflict(
                "image.exists",
                f"there is already an image {image.name} with other content",
                hint=f"choose another name, or remove that one first: 'vgpuctl image remove {image.name}'",
            )
        self._db.execute(insert(images).values(image_values(image)))
        if image.tenant is not None:
            self._tenants.change(image.tenant, {}, image_amounts(image))

    def get(self, name: str) -> Image:
        """:raises NotFound: ``image.unknown``"""
        row = self._db.execute(_IMAGE, {"its_name": name}).one_or_none()
        if row is None:
            raise NotFound(
                "image.unknown",
                f"no image is called {name[:63]!a}",
                hint=near(name, [one.name for one in self.list()], "vgpuctl image list"),
            )
        return image_of(row)

    def update(self, image: Image) -> None:
        self._db.execute(update(images).where(images.c.name == image.name).values(image_values(image)))

    def list(self) -> tuple[Image, ...]:
        return tuple(image_of(row) for row in self._db.execute(select(images).order_by(images.c.name)))

    def remove(self, name: str) -> None:
        """All hosts are compared anew with what is wanted: they may have copies."""
        gone = self._db.execute(_IMAGE, {"its_name": name}).one_or_none()
        image = None if gone is None else image_of(gone)
        if image is not None and image.tenant is not None:
            self._tenants.change(image.tenant, image_amounts(image), {})
        self._db.execute(update(looks).values(judged=None))
        self._db.execute(delete(images).where(images.c.name == name))


class SqlNetworks:
    def __init__(self, connection: Statements) -> None:
        self._db = connection

    def add(self, network: Network) -> None:
        """:raises Conflict: ``network.exists``"""
        if self.find(network.name) is not None:
            raise Conflict("network.exists", f"there is already a network {network.name}", hint="choose another name")
        self._db.execute(insert(networks).values(network_values(network)))

    def find(self, name: str) -> Network | None:
        row = self._db.execute(_NETWORK, {"its_name": name}).one_or_none()
        return None if row is None else network_of(row)

    def get(self, name: str) -> Network:
        """:raises NotFound: ``network.unknown``"""
        found = self.find(name)
        if found is None:
            raise unknown_network(name, [one.short for one in self.list()])
        return found

    def list(self) -> tuple[Network, ...]:
        return tuple(network_of(row) for row in self._db.execute(select(networks).order_by(networks.c.name)))

    def uplinks(self) -> dict[str, Uplink]:
        """Of those on bridges of hosts, by name."""
        found = map(network_of, self._db.execute(_BRIDGED))
        return {one.name: one.uplink for one in found if one.uplink is not None}

    def update(self, network: Network) -> None:
        self._db.execute(update(networks).where(networks.c.name == network.name).values(network_values(network)))

    def remove(self, name: str) -> None:
        self._db.execute(delete(networks).where(networks.c.name == name))


class SqlOfferings:
    def __init__(self, connection: Statements) -> None:
        self._db = connection

    def list(self) -> tuple[Offering, ...]:
        return tuple(offering_of(document) for document in self._db.execute(_OFFERINGS).scalars())

    def put(self, offering: Offering) -> None:
        self.remove(offering.name)
        self._db.execute(insert(offerings).values(name=offering.name, document=asdict(offering)))

    def remove(self, name: str) -> None:
        self._db.execute(delete(offerings).where(offerings.c.name == name))


class SqlSecrets:
    """Encrypted with the key file of the state directory: a copy of the database alone tells nothing."""

    def __init__(self, connection: Statements, box: SecretBox) -> None:
        self._db = connection
        self._box = box

    def put(self, secret_id: str, text: str) -> None:
        self.remove(secret_id)
        self._db.execute(_PUT_SECRET, {"id": secret_id, "blob": self._box.close(secret_id, text)})

    def find(self, secret_id: str) -> str | None:
        """:raises Fatal: ``secret.unreadable``"""
        blob = self._db.execute(_SECRET, {"its_id": secret_id}).scalar_one_or_none()
        try:
            return None if blob is None else self._box.open(secret_id, blob)
        except Unreadable as error:
            raise _unreadable() from error

    def get(self, secret_id: str) -> str:
        """:raises Bug: ``secret.missing``; :raises Fatal: ``secret.unreadable``"""
        text = self.find(secret_id)
        if text is None:
            raise Bug("secret.missing", "a stored secret is missing")
        return text

    def ids(self) -> tuple[str, ...]:
        return tuple(self._db.execute(select(secrets.c.id).order_by(secrets.c.id)).scalars())

    def remove(self, secret_id: str) -> None:
        self._db.execute(_NO_SECRET, {"its_id": secret_id})

    def bind(self) -> None:
        """Bind what older versions wrote to the rows it is in; what no key reads stays as it is."""
        unbound = func.substr(secrets.c.blob, 1, len(BOUND)) != BOUND
        for row in self._db.execute(select(secrets).where(unbound)).all():
            with suppress(Unreadable):
                self._put_again(row.id, row.blob)

    def encrypt_again(self) -> int:
        """All of them with the newest key; how many there are.

        :raises Fatal: ``secret.unreadable``
        """
        found = self._db.execute(select(secrets.c.id)).scalars()
        try:
            for one in found:
                blob = self._db.execute(select(secrets.c.blob).where(secrets.c.id == one)).scalar_one()
                self._put_again(one, blob)
        except Unreadable as error:
            raise _unreadable() from error
        return len(found)

    def _put_again(self, secret_id: str, blob: bytes) -> None:
        again = self._box.closed_again(secret_id, blob)
        self._db.execute(update(secrets).where(secrets.c.id == secret_id).values(blob=again))


def _unreadable() -> Fatal:
    return Fatal(
        "secret.unreadable",
        "a stored secret cannot be decrypted",
        hint="the key file in the state directory is not the one that it was written with, or it was written elsewhere",
    )


class SqlTime:
    def __init__(self, connection: Statements) -> None:
        self._db = connection

    def shown(self) -> float | None:
        """By PostgreSQL's clock; SQLite has none of its own."""
        if self._db.connection.dialect.name != "postgresql":
            return None
        return float(self._db.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())

    def mark(self) -> float | None:
        """As it was written down, else of the newest record of the audit."""
        mark = self._db.execute(select(meta.c.value).where(meta.c.key == _MARK)).scalar_one_or_none()
        if mark is not None:
            return float(mark)
        newest = select(audit.c.at).order_by(audit.c.sequence.desc()).limit(1)
        at: float | None = self._db.execute(newest).scalar_one_or_none()
        return at

    def no_earlier(self, shown: float) -> float:
        """The later of the two: a wall clock, and what has surely passed."""
        return max(shown, self.mark() or 0.0)

    def put_mark(self, passed: float) -> None:
        if self._db.execute(update(meta).where(meta.c.key == _MARK).values(value=repr(passed))).rowcount == 0:
            self._db.execute(insert(meta).values(key=_MARK, value=repr(passed)))
