# SPDX-License-Identifier: Apache-2.0
"""CPUs that VMs have alone, on screens and as people write them."""

from __future__ import annotations

import pytest

from orchestrator.cli.host_options import checked_cpus, shared_cpus
from orchestrator.core.errors import InvalidInput


@pytest.mark.parametrize("text", ["", " ", "\n", "x", "-3", "7-4", "4-6,"])
def test_cpus_that_nobody_named_are_refused_and_take_none_away(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_cpus(text)
    assert refused.value.code == "host.cpus_invalid"


def test_none_is_the_word_for_no_cpus_and_nothing_said_changes_nothing() -> None:
    assert checked_cpus("none") == ""
    assert checked_cpus(None) is None
    assert checked_cpus("4-5, 6") == "4-6"


def test_vms_share_the_cpus_that_a_host_does_not_keep() -> None:
    assert shared_cpus({"vcpus": 32, "pinnable_cpus": ""}) == 32
    assert shared_cpus({"vcpus": 32, "pinnable_cpus": "4-7,20-23"}) == 24
    assert shared_cpus({"vcpus": 4, "pinnable_cpus": "4-7,20-23"}) == 1
