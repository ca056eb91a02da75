# SPDX-License-Identifier: Apache-2.0
"""What controllers of one database ask each other for."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.controller import MAX_INVITATION_S, Door, Invitation
from orchestrator.core.errors import Conflict, Denied, InvalidInput, NotFound
from orchestrator.core.readings.received import ReceivedFrame
from orchestrator.core.tenancy.tenant import digest_of
from orchestrator.ports.clock import Clock
from orchestrator.ports.files import ImageFiles
from orchestrator.services.readings.kept import KeptReadings
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_ID_BYTES = 6
_SECRET_BYTES = 32


def invite(store: Store, clock: Clock, name: str, lifetime_s: float) -> Invitation:
    """A token that lets one more controller fetch the site's key from ``name``, once.

    :raises InvalidInput: ``controller.lifetime``; :raises Conflict: ``controller.no_address``
    """
    if not 0 < lifetime_s <= MAX_INVITATION_S:
        raise InvalidInput("controller.lifetime", "a token to join with is good for a day at most", hint="--for 15m")
    secret, invitation_id, now = secrets.token_urlsafe(_SECRET_BYTES), secrets.token_hex(_ID_BYTES), clock.now()
    with store.begin() as tx:
        door = _door(tx.controllers.doors(), name)
        if door is None:
            raise Conflict(
                "controller.no_address",
                "no server of this state directory is reached by other controllers",
                hint="set database_url, listen, tls_cert and tls_key in config.yaml and start it",
            )
        tx.controllers.invite(invitation_id, digest_of(secret), now, now + lifetime_s)
        tx.audit.append(
            at=now, actor="server", action="invite_controller", subject=invitation_id, outcome=f"for {lifetime_s:g} s"
        )
    return Invitation(address=door.address, certificate=door.certificate, id=invitation_id, secret=secret)


@dataclass(frozen=True, kw_only=True)
class ControllerService:
    """``key``: the one that the database's secrets are encrypted with."""

    store: Store
    clock: Clock
    files: ImageFiles
    kept: KeptReadings
    key: bytes

    def join(self, invitation_id: str, secret: str) -> tuple[str, str]:
        """The site and its key, for who was invited.

        :raises Denied: ``controller.not_invited``: unknown, used and old tokens are told apart by nobody
        """
        now = self.clock.now()
        with self.store.begin() as tx:
            if not tx.controllers.use_invitation(invitation_id, digest_of(secret), now):
                raise Denied(
                    "controller.not_invited",
                    "this token is not good, or is not any more",
                    hint="it is good once and not for long: 'vgpuctl server invite' makes a new one",
                )
            tx.audit.append(at=now, actor="server", action="join_controller", subject=invitation_id, outcome="done")
        return self.store.site, self.key.decode("ascii")

    def image(self, name: str, secret: str, sha256: str, image_format: ImageFormat) -> Path:
        """The file of an image, for a controller that shows its secret.

        :raises Denied: ``controller.unknown``; :raises NotFound: ``image.unknown``
        """
        with self.store.read() as tx:
            _check_controller(tx, name, secret)
            is_registered = any((image.sha256, image.format) == (sha256, image_format) for image in tx.images.list())
        path = self.files.local(sha256, image_format)
        if not is_registered or path is None:
            raise NotFound("image.unknown", "this controller does not have that image", hint="ask another one")
        return path

    def readings(self, name: str, secret: str, hosts: Iterable[str]) -> dict[str, ReceivedFrame]:
        """What this controller hears of these hosts, for one that shows its secret.

        :raises Denied: ``controller.unknown``
        """
        with self.store.read() as tx:
            _check_controller(tx, name, secret)
        last = ((host, self.kept.last(host)) for host in hosts)
        return {host: received for host, received in last if received is not None}


def _check_controller(tx: Transaction, name: str, secret: str) -> None:
    """:raises Denied: ``controller.unknown``"""
    known = _door(tx.controllers.doors(), name)
    if known is None or not hmac.compare_digest(known.credential, digest_of(secret)):
        raise Denied("controller.unknown", "no controller of this site shows that", hint="only controllers may ask")


def _door(doors: tuple[Door, ...], name: str) -> Door | None:
    return next((door for door in doors if door.name == name), None)
