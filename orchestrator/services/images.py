# SPDX-License-Identifier: Apache-2.0
"""Base images: of the site, and of tenants."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from orchestrator.core.drivers.matrix import version_key
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.labels import show_changes
from orchestrator.core.names import check_sha256, near
from orchestrator.core.units import MIB, show_count
from orchestrator.core.vms.image import Image, NewImage, check_file_name, check_one_more, exists, stored_name
from orchestrator.ports.clock import Clock
from orchestrator.ports.files import ImageFiles
from orchestrator.services.acting import actor
from orchestrator.services.tenancy.quotas import QuotaRoom
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class ImageService:
    """Add, look, remove. Copies on hosts are removed once a look finds that they have no name any more."""

    store: Store
    files: ImageFiles
    clock: Clock

    def add(self, wanted: NewImage, tenant: str | None = None, *, shared: bool = False) -> Image:
        """Returns when it is stored and checked. ``tenant``: whose alone it is, unless it is ``shared`` with the
        others; None: the site's, and everybody's.

        The same content under the same name again is fine; a tenant's is then shared as it is said now.

        :raises InvalidInput: ``image.name_invalid``, ``image.source_refused``, ``image.unsafe``,
            ``image.digest_differs``, ``image.architecture``
        :raises NotFound: ``tenant.unknown``; :raises QuotaExceeded: ``quota.exceeded``
        :raises Conflict: ``image.exists`` when the name is taken by other content, ``image.too_many``
        """
        name = stored_name(tenant, wanted.name)
        check_sha256(wanted.sha256, "image.digest_invalid")
        if isinstance(wanted.source, str):
            check_file_name(wanted.source)
        existing = self._as_announced(name, wanted.sha256)
        if existing is not None:
            return self._shared(existing, shared=shared)
        with self.store.read() as tx:
            check_room(tx, tenant, name, wanted.size_bytes or 0)
        with self.files.take(replace(wanted, name=name), self.clock.now()) as taken, self.store.begin() as tx:
            image, existing = replace(taken.described, shared=shared), _find(tx, name)
            if existing is not None and existing.sha256 != image.sha256:
                raise exists(name)
            check_room(tx, tenant, name, image.size_bytes)
            taken.keep()
            if existing is None:
                tx.images.add(image)
                self._note(tx, "add_image", image)
        return image if existing is None else self._shared(existing, shared=shared)

    def _as_announced(self, name: str, sha256: str | None) -> Image | None:
        """What is there under the name, by what its content is said to hash to: nothing is copied or sent then."""
        with self.store.read() as tx:
            existing = _find(tx, name)
        if existing is None or sha256 is None:
            return None
        if existing.sha256 != sha256.lower():
            if existing.format == "qcow2":  # it may be out of the VMDK that is sent again
                return None
            raise exists(name)
        return existing if self.files.local(existing.sha256, existing.format) is not None else None

    def _shared(self, there: Image, *, shared: bool) -> Image:
        if there.shared == shared:
            return there
        with self.store.begin() as tx:
            image = replace(tx.images.get(there.name), shared=shared)
            tx.images.update(image)
            self._note(tx, "share_image" if shared else "unshare_image", image)
        return image

    def list(self, tenants: Collection[str] | None = None) -> tuple[Image, ...]:
        """The site's by name, then by tenant; of tenants' those that these may use (None: all)."""
        with self.store.read() as tx:
            images = tx.images.list()
        visible = [
            image for image in images if tenants is None or image.tenant is None or any(map(image.is_for, tenants))
        ]
        return tuple(sorted(visible, key=lambda image: (image.tenant or "", image.short)))

    def get(self, name: str, tenant: str | None = None) -> Image:
        """The site's; ``tenant``: what a VM of that tenant gets by the name. :raises NotFound: ``image.unknown``"""
        with self.store.read() as tx:
            return known_image(tx, tenant, name)

    def set_guest_driver(self, name: str, version: str | None, tenant: str | None = None) -> Image:
        """Which NVIDIA driver is in it, for judging where its VMs may run. None: nobody knows.

        :raises InvalidInput: ``driver.version_invalid``; :raises NotFound: ``image.unknown``
        """
        if version is not None:
            version_key(version)
        with self.store.begin() as tx:
            before = _of(tx, tenant, name)
            image = replace(before, guest_driver=version)
            if image != before:
                tx.images.update(image)
                self._note(tx, f"set_guest_driver {version or 'none'}", image)
        return image

    def describe(
        self, name: str, tenant: str | None, description: str | None, labels: Mapping[str, str | None]
    ) -> Image:
        """The tenant's own image, None: one of the site. None as a description: it stays, as a label's value: it goes.

        :raises NotFound: ``image.unknown``; :raises InvalidInput: ``label.…``"""
        with self.store.begin() as tx:
            before = _of(tx, tenant, name)
            image = replace(before, about=before.about.changed(description, labels))
            if image.about != before.about:
                tx.images.update(image)
                self._note(tx, f"set_image {show_changes(description, labels)}", image)
        return image

    def remove(self, name: str, tenant: str | None = None) -> None:
        """:raises Conflict: ``image.in_use``; :raises NotFound: ``image.unknown``"""
        with self.store.begin() as tx:
            image = _of(tx, tenant, name)
            users = [vm for vm in tx.vms.list() if vm.spec.image == image.name]
            if users:
                theirs = [vm.full_name for vm in users if tenant in {None, vm.spec.tenant}]
                named = ", ".join(theirs[:5]) + (f" and {len(theirs) - 5} more" if len(theirs) > 5 else "")
                raise Conflict(
                    "image.in_use",
                    f"image {name} is the base of {show_count(len(users), 'VM')}: {named or 'of other tenants'}",
                    hint="delete them first" if theirs else "they have it until they are deleted",
                )
            tx.images.remove(image.name)
            self._note(tx, "remove_image", image)
        with self.store.begin() as tx:  # once that is certain: the name may have been given again by now
            if not _is_named(tx, image):
                self.files.remove(image.sha256, image.format)

    def _note(self, tx: Transaction, action: str, image: Image) -> None:
        outcome = f"sha256:{image.sha256}"
        tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=image.name, outcome=outcome)


def known_image(tx: Transaction, tenant: str | None, name: str) -> Image:
    """What a VM of the tenant means: its own image of that name, else the site's; of another tenant, which shares it,
    ``tenant/name``. None: the site's alone.

    :raises NotFound: ``image.unknown``, with near names of those that it may know of"""
    every = tx.images.list()
    known = {
        candidate.name: candidate
        for candidate in every
        if (candidate.tenant is None if tenant is None else candidate.is_for(tenant))
    }
    image = known.get(f"{tenant}/{name}") or known.get(name)
    if image is None:
        near_to = [candidate.short if candidate.tenant == tenant else candidate.name for candidate in known.values()]
        hint = near(name, near_to, "vgpuctl image list")
        raise NotFound("image.unknown", f"no image is called {name[:63]!a}", hint=hint)
    return image


def _of(tx: Transaction, tenant: str | None, name: str) -> Image:
    """To be changed: the tenant's own, or the site's. :raises NotFound: ``image.unknown``"""
    image = known_image(tx, tenant, name)
    if image.tenant != tenant:
        hint = f"'vgpuctl image list' tells whose images are; {name[:63]} is not tenant {tenant}'s"
        raise NotFound("image.unknown", f"tenant {tenant} has no image {name[:63]!a}", hint=hint)
    return image


def check_room(tx: Transaction, tenant: str | None, name: str, size_bytes: int) -> None:
    """Of a tenant that would have one more image.

    :raises NotFound: ``tenant.unknown``; :raises QuotaExceeded: ``quota.exceeded``
    :raises Conflict: ``image.too_many``, ``image.exists``: the site has one of that name"""
    if tenant is None or _find(tx, name) is not None:
        return
    known_tenant(tx, tenant)
    check_one_more(name, tx.images.list())
    amounts = {"images": -(-size_bytes // MIB)}
    QuotaRoom.told(tx, tenant, amounts).check(amounts)


def _find(tx: Transaction, name: str) -> Image | None:
    try:
        return tx.images.get(name)
    except NotFound:
        return None


def _is_named(tx: Transaction, image: Image) -> bool:
    """Whether a name stands for its content."""
    return any((other.sha256, other.format) == (image.sha256, image.format) for other in tx.images.list())
