# SPDX-License-Identifier: Apache-2.0
"""Base images."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.digest import check_sha256
from orchestrator.core.driver_matrix import version_key
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.image import Image, NewImage, check_file_name
from orchestrator.core.names import check_name
from orchestrator.ports.clock import Clock
from orchestrator.ports.files import ImageFiles
from orchestrator.ports.store.transaction import Store, Transaction
from orchestrator.services.acting import actor


@dataclass(frozen=True, kw_only=True)
class ImageService:
    """Add, look, remove. Copies on hosts are removed once a look finds that they have no name any more."""

    store: Store
    files: ImageFiles
    clock: Clock

    def add(self, wanted: NewImage) -> Image:
        """Returns when it is stored and checked.

        The same content under the same name again is fine.

        :raises InvalidInput: ``image.source_refused``, ``image.unsafe``, ``image.digest_differs``,
            ``image.architecture``
        :raises Conflict: ``image.exists`` when the name is taken by other content
        """
        name = check_name(wanted.name, what="image")
        check_sha256(wanted.sha256, "image.digest_invalid")
        if isinstance(wanted.source, str):
            check_file_name(wanted.source)
        there = self._as_announced(name, wanted.sha256)
        if there is not None:
            return there
        with self.files.take(wanted, self.clock.now()) as taken, self.store.begin() as tx:
            image, there = taken.described, _find(tx, name)
            if there is not None and there.sha256 != image.sha256:
                raise _exists(name)
            taken.keep()
            if there is None:
                tx.images.add(image)
                self._note(tx, "add_image", name, image)
        return there or image

    def _as_announced(self, name: str, sha256: str | None) -> Image | None:
        """What is there under the name, by what its content is said to hash to: nothing is copied or sent then."""
        with self.store.read() as tx:
            there = _find(tx, name)
        if there is None or sha256 is None:
            return None
        if there.sha256 != sha256.lower():
            raise _exists(name)
        return there if self.files.local(there.sha256, there.format) is not None else None

    def list(self) -> tuple[Image, ...]:
        """By name."""
        with self.store.read() as tx:
            return tx.images.list()

    def get(self, name: str) -> Image:
        """:raises NotFound: ``image.unknown``"""
        with self.store.read() as tx:
            return tx.images.get(name)

    def set_guest_driver(self, name: str, version: str | None) -> Image:
        """Which NVIDIA driver is in it, for judging where its VMs may run. None: nobody knows.

        :raises InvalidInput: ``driver.version_invalid``; :raises NotFound: ``image.unknown``
        """
        if version is not None:
            version_key(version)
        with self.store.begin() as tx:
            before = tx.images.get(name)
            image = replace(before, guest_driver=version)
            if image != before:
                tx.images.update(image)
                self._note(tx, f"set_guest_driver {version or 'none'}", name, image)
        return image

    def remove(self, name: str) -> None:
        """:raises Conflict: ``image.in_use``; :raises NotFound: ``image.unknown``"""
        with self.store.begin() as tx:
            image = tx.images.get(name)
            users = [f"{vm.spec.tenant}/{vm.spec.name}" for vm in tx.vms.list() if vm.spec.image == name]
            if users:
                raise Conflict(
                    "image.in_use",
                    f"image {name} is the base of {len(users)} VMs: {', '.join(users[:5])}",
                    hint="delete them first",
                )
            tx.images.remove(name)
            self._note(tx, "remove_image", name, image)
        with self.store.begin() as tx:  # once that is certain: the name may have been given again by now
            if not _is_named(tx, image):
                self.files.remove(image.sha256, image.format)

    def _note(self, tx: Transaction, action: str, name: str, image: Image) -> None:
        outcome = f"sha256:{image.sha256}"
        tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=name, outcome=outcome)


def _exists(name: str) -> Conflict:
    return Conflict(
        "image.exists",
        f"there is already an image {name} with other content",
        hint="choose another name, or remove that one",
    )


def _find(tx: Transaction, name: str) -> Image | None:
    try:
        return tx.images.get(name)
    except NotFound:
        return None


def _is_named(tx: Transaction, image: Image) -> bool:
    """Whether a name stands for its content."""
    return any((one.sha256, one.format) == (image.sha256, image.format) for one in tx.images.list())
