# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.core.geometry.cut import cut_words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("time_sliced:12288", "vGPUs of 12GiB"),
        ("time_sliced:512", "vGPUs of 512MiB"),
        ("mixed", "vGPUs of mixed sizes"),
        ("mig", "MIG"),
        ("whole", "whole"),
        ("time_sliced:", "time_sliced:"),
        (None, "-"),
    ],
)
def test_people_read_how_a_gpu_is_cut_in_their_own_units(name: str | None, words: str) -> None:
    assert cut_words(name) == words
