# SPDX-License-Identifier: Apache-2.0
"""The server's certificate: read again when its files change, while connections that are open go on with theirs."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Final

from anyio import to_thread
from cryptography import x509

from orchestrator.api.listening import Tls

log = logging.getLogger(__name__)

LOOK_S: Final = 2.0
Stamp = tuple[tuple[int, int, int], ...]


class ServedCertificate:
    """Of one address. ``ends_at``: seconds since the epoch; ``refused``: why the files that are there now are not
    served, None: they are."""

    def __init__(self, tls: Tls) -> None:
        """:raises OSError, ValueError: they are no certificate and its key"""
        self._tls = tls
        self._stamp = self._looked()
        self._context, self.ends_at = self._loaded()
        self.refused: str | None = None
        self.context = self._context
        """What is listened with: each handshake is given the newest."""
        self.context.sni_callback = self._choose

    async def follow(self) -> None:
        """Look every :data:`LOOK_S`, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await to_thread.run_sync(self.look)

    def look(self) -> None:
        """A pair that does not fit is kept out and told once: the other file may only be on its way."""
        try:
            stamp = self._looked()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._context, self.ends_at = self._loaded()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if self.refused is None or str(error) != self.refused:
                log.warning("the certificate that is in its file now is not served: %s", error)
            self.refused = str(error)
            return
        self.refused = None
        log.info("the certificate was read again")

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _: str | None, context: ssl.SSLContext) -> None:
        if self._context is not context:
            connection.context = self._context

    def _looked(self) -> Stamp:
        statuses = [path.stat() for path in (self._tls.certificate, self._tls.key)]
        return tuple((status.st_mtime_ns, status.st_size, status.st_ino) for status in statuses)

    def _loaded(self) -> tuple[ssl.SSLContext, float]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._tls.certificate, self._tls.key)
        certificate = x509.load_pem_x509_certificate(self._tls.certificate.read_bytes())
        return context, certificate.not_valid_after_utc.timestamp()
