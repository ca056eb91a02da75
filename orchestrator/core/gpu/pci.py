# SPDX-License-Identifier: Apache-2.0
"""PCI addresses in the one form the kernel's sysfs uses: ``0000:41:00.4``, lower case."""

from __future__ import annotations

import re

from orchestrator.core.errors import InvalidInput

_ADDRESS = re.compile(
    r"(?:(?P<domain>[0-9a-f]{4}|0000[0-9a-f]{4}):)?(?P<bus>[0-9a-f]{2}):(?P<slot>[01][0-9a-f])\.(?P<function>[0-7])",
    re.ASCII | re.IGNORECASE,
)


def parse_pci_address(text: str) -> str:
    """The canonical address. Accepts a missing domain, upper case and NVML's eight-digit domain.

    :raises InvalidInput: ``pci.address_invalid``
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise InvalidInput(
            "pci.address_invalid",
            f"{ascii(text)[:60]} is not a PCI address",
            hint="write it as lspci -D prints it, for example 0000:41:00.0",
        )
    domain = (match["domain"] or "0000")[-4:]
    return f"{domain}:{match['bus']}:{match['slot']}.{match['function']}".lower()


def is_pci_address(text: str) -> bool:
    """Whether it is a canonical address."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and text == text.lower() and match["domain"] is not None and len(match["domain"]) == 4


def split_pci_address(address: str) -> tuple[int, int, int, int]:
    """Domain, bus, slot, function of a canonical address, as libvirt's XML wants them."""
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    return int(domain, 16), int(bus, 16), int(slot, 16), int(function, 16)
