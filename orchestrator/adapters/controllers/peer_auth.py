# SPDX-License-Identifier: Apache-2.0
"""How controllers reach each other: where, with which secret, and by HTTPS for which the one certificate counts that is
known of the other, not who has signed it."""

from __future__ import annotations

import hashlib
import http.client
import secrets
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from orchestrator.adapters.state.keys import write_private
from orchestrator.adapters.whole_answer import WholeAnswer, of_file
from orchestrator.core.controller import Door
from orchestrator.core.errors import Fatal, Retryable
from orchestrator.core.tenancy.tenant import digest_of
from orchestrator.store.database import Store

_EVERYWHERE: Final = frozenset({"0.0.0.0", "[::]", "::"})  # noqa: S104 - what a setting may say


def credential(path: Path) -> str:
    """Drawn at the first call."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32).encode())
    return path.read_text(encoding="ascii").strip()


def credential_header(name: str, shown: str) -> dict[str, str]:
    """By which the others know the controller ``name``. ``shown``: its secret."""
    return {"Authorization": f"Controller {name} {shown}"}


def announce_address(
    store: Store, name: str, *, listen: str | None, advertise: str | None, certificate: Path | None, shown: str
) -> None:
    """Write down where the others reach this controller; nowhere unless it listens. ``shown``: its secret."""
    with store.begin() as tx:
        if listen is None or certificate is None:
            tx.controllers.remove_door(name)
            return
        tx.controllers.put_door(
            Door(
                name=name,
                address=advertise or _reached(listen),
                certificate=fingerprint(certificate),
                credential=digest_of(shown),
            )
        )


def _reached(listen: str) -> str:
    host, _, port = listen.rpartition(":")
    return f"{socket.getfqdn() if host in _EVERYWHERE else host}:{port}"


ANSWER_S: Final = 30.0
_CHUNK: Final = 1024 * 1024


def fingerprint(certificate: Path) -> str:
    """SHA-256 of the first certificate of a PEM file, as DER, in hexadecimal."""
    text = certificate.read_text(encoding="ascii", errors="replace")
    first = text[text.index("-----BEGIN CERTIFICATE-----") :].partition("-----END CERTIFICATE-----")
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first[0] + first[1])).hexdigest()


class _Connection(http.client.HTTPSConnection):
    response_class: Any

    def __init__(self, address: str, certificate: str, answer_s: float, *, whole: bool) -> None:
        host, _, port = address.rpartition(":")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # compared below, before anything is said
        super().__init__(host.strip("[]"), int(port), timeout=answer_s, context=context)
        self._known = certificate
        self.response_class = partial(WholeAnswer, pace=None if whole else of_file())

    def connect(self) -> None:
        super().connect()
        shown = self.sock.getpeercert(binary_form=True) or b""
        if hashlib.sha256(shown).hexdigest() != self._known:
            self.close()
            raise Fatal(
                "controller.other_certificate",
                f"{self.host} port {self.port} shows another certificate than the known one",
                hint="somebody may stand between; after a change of its certificate make a new token",
            )


@contextmanager
def asked(
    address: str,
    certificate: str,
    path: str,
    *,
    headers: dict[str, str],
    body: bytes | None = None,
    answer_s: float = ANSWER_S,
) -> Iterator[http.client.HTTPResponse]:
    """The answer to a GET, or with a body to a POST, whatever its status. ``answer_s``: for all of the answer to a
    POST; for each read of what may be large (GET), of which a KiB must come in a second.

    :raises Retryable: ``controller.unreachable``; :raises Fatal: ``controller.other_certificate``
    """
    connection = _Connection(address, certificate, answer_s, whole=body is not None)
    try:
        connection.request("GET" if body is None else "POST", path, body, headers)
        yield connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise Retryable(
            "controller.unreachable",
            f"the controller at {address} does not answer",
            hint="does it run, and does it listen on the network?",
            details=str(error),
        ) from error
    finally:
        connection.close()


def chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body; a connection that ends too early raises IncompleteRead."""
    while chunk := answer.read(_CHUNK):
        yield chunk
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
