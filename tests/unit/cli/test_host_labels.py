# SPDX-License-Identifier: Apache-2.0
"""Whom a host is kept for, on the screen."""

from __future__ import annotations

from orchestrator.cli.host_options import label_lines


def test_a_kept_host_names_the_vms_of_others_that_are_still_there() -> None:
    host = {"labels": {"rack": "3", "kept-for": "vision"}, "vms": ["vision/a", "visions/b", "web/c"]}
    assert dict(label_lines(host)) == {
        "labels": "kept-for=vision,rack=3",
        "kept for": "vision; VMs of others stay: visions/b, web/c",
    }
    assert dict(label_lines({**host, "vms": ["vision/a"]}))["kept for"] == "vision"
    assert dict(label_lines({**host, "labels": {}})) == {"labels": "-"}
