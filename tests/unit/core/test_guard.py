# SPDX-License-Identifier: Apache-2.0
"""The filter of every guest, judged by libvirt's own schema. That it holds is shown on a lab host."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from orchestrator.core.domain_xml.interface import GUARD, guard_xml
from tests.unit.core.relaxng import is_valid


def test_libvirt_takes_the_filter() -> None:
    assert is_valid("nwfilter.rng", guard_xml())
    assert not is_valid("nwfilter.rng", guard_xml().replace("srcportstart", "port"))


def test_no_guest_answers_as_a_dhcp_server_before_anything_else_is_asked() -> None:
    root = ET.fromstring(guard_xml())
    assert root.get("name") == GUARD
    (rule,) = root.findall("rule")
    assert (rule.get("action"), rule.get("direction"), rule.get("priority")) == ("drop", "out", "-1000")
    (what,) = rule
    assert (what.tag, what.attrib) == ("ip", {"protocol": "udp", "srcportstart": "67"})


def test_everything_else_is_what_libvirt_calls_clean() -> None:
    assert [one.get("filter") for one in ET.fromstring(guard_xml()).findall("filterref")] == ["clean-traffic"]
