# SPDX-License-Identifier: Apache-2.0
"""libvirt networks: made when missing, taken away again only when we made them."""

from __future__ import annotations

from typing import Any

import libvirt

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import Libvirt, is_absent
from orchestrator.core.host_actions import ActionResult

_MADE, _STARTED = "made", "started"
_NOBODY = "host"
"""Owner of what belongs to no single VM."""


def _key(name: str) -> str:
    return f"network:{name}"


def _lookup(connection: Any, name: str) -> Any:
    try:
        return connection.networkLookupByName(name)
    except libvirt.libvirtError as error:
        if is_absent(error):
            return None
        raise


class LibvirtNetworks:
    def __init__(self, connection: Libvirt, ledger: Ledger) -> None:
        self._libvirt = connection
        self._ledger = ledger

    def active(self) -> tuple[str, ...]:
        """Names of the active networks."""
        names = self._libvirt.call(
            lambda connection: [network.name() for network in connection.listAllNetworks() if network.isActive()]
        )
        return tuple(sorted(names))

    def ensure(self, name: str, xml: str) -> ActionResult:
        """Make and start it; a network of that name that is there keeps its definition and is started.

        :raises Fatal: ``network.refused``"""

        def ensure(connection: Any) -> bool:
            network = _lookup(connection, name)
            if network is None:
                self._ledger.claim(_key(name), _NOBODY, detail=_MADE)
                network = connection.networkDefineXML(xml)
                network.setAutostart(True)
            if network.isActive():
                return False
            if self._ledger.owner(_key(name)) is None:
                self._ledger.claim(_key(name), _NOBODY, detail=_STARTED)
            self._start(name, network)
            return True

        changed = self._libvirt.call(
            ensure, code="network.refused", message=f"libvirt cannot provide the network {name}", hint="see the details"
        )
        return ActionResult(changed=changed)

    def _start(self, name: str, network: Any) -> None:
        """A network that does not start is left as it was found."""
        try:
            network.create()
        except libvirt.libvirtError:
            owner = self._ledger.owner(_key(name))
            if owner is not None and owner.detail == _MADE:
                network.undefine()
            self._ledger.release(_key(name))
            raise

    def remove(self, name: str) -> ActionResult:
        """Leave the network as it was before :meth:`ensure`."""
        owner = self._ledger.owner(_key(name))
        if owner is None:
            return ActionResult(changed=False, message="not made here")

        def remove(connection: Any) -> bool:
            network = _lookup(connection, name)
            if network is None:
                return False
            if network.isActive():
                network.destroy()
            if owner.detail == _MADE and network.isPersistent():
                network.undefine()
            return True

        changed = self._libvirt.call(remove, code="network.remove_failed", message=f"network {name} was not removed")
        self._ledger.release(_key(name))
        return ActionResult(changed=changed)
