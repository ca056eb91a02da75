# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.core.errors import Fatal, InvalidInput, Unknown
from orchestrator.core.gpu.vgpu_metadata import Compatibility, VgpuQuestion, answers_from_dict, answers_to_dict
from tests.contract.agent_over_ssh import Chain

ASKED = [VgpuQuestion("AA==", "AA==")]


def test_a_host_without_a_driver_says_that_it_cannot_tell(way: Chain, link: SshHostLink) -> None:
    with pytest.raises(Fatal, match="NVIDIA driver does not answer"):
        link.vgpu_compatibility(way.host, ASKED)
    with pytest.raises(InvalidInput):
        link.vgpu_compatibility(way.host, [])


def test_answers_come_as_they_were_given() -> None:
    answers = (Compatibility(15, 0), None, Compatibility(0, 2**31))
    assert answers_from_dict(answers_to_dict(answers), ASKED * 3) == answers


@pytest.mark.parametrize(
    "lie", [None, {}, [], [[1, 2], [1, 2]], [[1]], [[1, -1]], [[1, 2**32]], [[True, 1]], [["1", 1]], ["15"], [{}]]
)
def test_an_answer_that_is_none_is_not_believed(lie: object) -> None:
    with pytest.raises(Unknown, match="is none"):
        answers_from_dict({"answers": lie}, ASKED)
