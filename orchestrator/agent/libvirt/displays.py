# SPDX-License-Identifier: Apache-2.0
"""The graphical console of a domain: RFB with its QEMU over a descriptor that libvirt passes; nothing listens."""

from __future__ import annotations

import socket
from typing import Any

import libvirt

from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.core.domain_xml.display import vnc_index
from orchestrator.core.errors import Conflict


def open_display(host: Libvirt, vm: str) -> socket.socket:
    """A connection to the VNC server of the VM's QEMU, without a password whatever the definition says.

    :raises Conflict: ``vm.no_display``
    :raises Fatal: ``display.refused``"""

    def opened(connection: Any) -> socket.socket:
        domain = connection.lookupByUUIDString(vm)
        index = vnc_index(domain.XMLDesc())
        if index is None:
            raise Conflict(
                "vm.no_display",
                "the VM runs without a graphical console",
                hint="a VM that vgpuctl defined has one from its next start on",
            )
        return socket.socket(fileno=domain.openGraphicsFD(index, libvirt.VIR_DOMAIN_OPEN_GRAPHICS_SKIPAUTH))

    return host.call(
        opened, code="display.refused", message="the VM's display cannot be opened", hint="is the VM running?"
    )
