# SPDX-License-Identifier: Apache-2.0
"""A VM as libvirt's domain XML: pure, and equal input gives equal bytes. One file per part of the XML."""

from orchestrator.core.domain_xml.domain import domain_xml

__all__ = ["domain_xml"]
