# SPDX-License-Identifier: Apache-2.0
"""Base images of all controllers: what another one has taken is fetched from it, and checked by its digest."""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from orchestrator.adapters.controllers.peer_auth import asked, chunks, credential_header
from orchestrator.adapters.images.library import ImageLibrary
from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.controller import Door
from orchestrator.core.errors import Retryable, VgpuctlError
from orchestrator.core.vms.image import Image, NewImage
from orchestrator.ports.files import TakenFile
from orchestrator.store.database import Store

PATH: Final = "/controllers/images/"
_OK: Final = 200
log = logging.getLogger(__name__)


class FetchedImages:
    """Implements ports/files.ImageFiles: a library, and those of the other controllers behind it."""

    def __init__(self, library: ImageLibrary, store: Store, name: str, credential: str) -> None:
        """``name`` of this controller and the secret that it shows to the others."""
        self._library = library
        self._store = store
        self._name = name
        self._credential = credential
        self._fetching = threading.Lock()
        self._round: threading.Thread | None = None
        self._known = self._stored()

    def take(self, wanted: NewImage, now: float) -> AbstractContextManager[TakenFile[Image]]:
        return self._library.take(wanted, now)

    def path(self, sha256: str, image_format: ImageFormat) -> Path:
        """:raises Retryable: ``image.elsewhere``"""
        if not self.has(sha256, image_format):
            with self._fetching:
                if not self.has(sha256, image_format):
                    self._fetch(sha256, image_format)
        return self._library.path(sha256, image_format)

    def has(self, sha256: str, image_format: ImageFormat) -> bool:
        """Whether nothing has to be fetched."""
        return self._library.local(sha256, image_format) is not None

    def local(self, sha256: str, image_format: ImageFormat) -> Path | None:
        return self._library.local(sha256, image_format)

    def remove(self, sha256: str, image_format: ImageFormat) -> None:
        self._library.remove(sha256, image_format)

    def round(self) -> None:
        """Begin to fetch what was added elsewhere, unless that is under way, so that it is here when its controller
        is gone; remove what was removed elsewhere."""
        images = self._stored()
        gone, self._known = self._known - images, images
        for image in gone:
            self._remove_unless_named(*image)
        missing = [image for image in sorted(images) if not self.has(*image)]
        if missing and self._others() and (self._round is None or not self._round.is_alive()):
            self._round = threading.Thread(target=self._fetch_all, args=(missing,), name="images", daemon=True)
            self._round.start()

    def _remove_unless_named(self, sha256: str, image_format: ImageFormat) -> None:
        """It may have been added again since it was last seen."""
        with self._store.begin() as tx:
            if all((image.sha256, image.format) != (sha256, image_format) for image in tx.images.list()):
                self._library.remove(sha256, image_format)

    def _stored(self) -> frozenset[tuple[str, ImageFormat]]:
        with self._store.read() as tx:
            return frozenset((image.sha256, image.format) for image in tx.images.list())

    def _fetch_all(self, missing: list[tuple[str, ImageFormat]]) -> None:
        for sha256, image_format in missing:
            try:
                self.path(sha256, image_format)
            except VgpuctlError as error:  # the next round is another try
                log.warning("image %s: %s: %s", sha256[:12], error.message, error.details)

    def _others(self) -> tuple[Door, ...]:
        with self._store.read() as tx:
            return tuple(door for door in tx.controllers.doors() if door.name != self._name)

    def _fetch(self, sha256: str, image_format: ImageFormat) -> None:
        why = []
        for door in self._others():
            try:
                self._fetch_from(door, sha256, image_format)
            except VgpuctlError as error:
                why.append(f"{door.name}: {error.message}")
            else:
                log.info("image %s was fetched from %s", sha256[:12], door.name)
                return
        raise Retryable(
            "image.elsewhere",
            "this controller does not have the image, and no other one gave it",
            hint="start the controller that it was added at, or add the image here again",
            details="; ".join(why) or "no other controller is known",
        )

    def _fetch_from(self, door: Door, sha256: str, image_format: ImageFormat) -> None:
        headers = credential_header(self._name, self._credential)
        path = f"{PATH}{sha256}.{image_format}"
        with asked(door.address, door.certificate, path, headers=headers) as answer:
            if answer.status != _OK:
                raise Retryable("controller.refused", f"it answers {answer.status}")
            self._library.keep(chunks(answer), sha256, image_format)
