# SPDX-License-Identifier: Apache-2.0
"""What names the GPUs that reach each other over NVLink."""

from __future__ import annotations

import pytest

from orchestrator.core.gpu.fabric import GpuFabric, nvlink_domain

BOARD = GpuFabric(state="completed", cluster=None, clique=0)
RACK, OTHER = (GpuFabric(state="completed", cluster="9c6f", clique=clique) for clique in (7, 8))


@pytest.mark.parametrize(
    ("gpus", "domain"),
    [
        ([BOARD, BOARD], "machine-1"),
        ([None, None], "machine-1"),  # VMs have them all
        ([RACK, RACK, None], "9c6f.7"),
        ([RACK, OTHER], None),
    ],
)
def test_a_board_is_a_domain_of_its_own_and_clusters_have_one_for_each_clique(
    gpus: list[GpuFabric | None], domain: str | None
) -> None:
    assert nvlink_domain("machine-1", gpus) == domain


def test_two_boards_of_which_no_cluster_is_told_are_never_one_domain() -> None:
    assert nvlink_domain("machine-1", [BOARD]) != nvlink_domain("machine-2", [BOARD])
