# SPDX-License-Identifier: Apache-2.0
"""The filter of libvirt that our VMs' network cards are under: there before the first of them, gone with our networks.

A libvirt without filters (its own test driver) has none to define. It starts no VM of ours either: each names it.
"""

from __future__ import annotations

from typing import Any

import libvirt

from orchestrator.agent.libvirt.connection import is_absent
from orchestrator.core.domain_xml.interface import GUARD, guard_xml


def ensure(connection: Any) -> None:
    """As this agent writes it. Cards that are under it already get the new text; the same again changes nothing.

    :raises libvirtError: also where somebody else has a filter of that name"""
    try:
        connection.nwfilterDefineXML(guard_xml())
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
            raise


def remove(connection: Any) -> None:
    """Nothing where it is not there."""
    try:
        connection.nwfilterLookupByName(GUARD).undefine()
    except libvirt.libvirtError as error:
        if not is_absent(error) and error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
            raise
