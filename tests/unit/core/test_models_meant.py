# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.core.errors import NotFound
from orchestrator.core.gpu.model import models_meant

MODELS = {"A10", "A100 PCIe 80GB", "A100 SXM4 80GB"}


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [(None, MODELS), ("a10", {"A10"}), ("a100", MODELS - {"A10"}), ("sxm", {"A100 SXM4 80GB"}), ("", MODELS)],
)
def test_a_whole_name_means_that_model_and_a_part_all_that_have_it(wanted: str | None, meant: set[str]) -> None:
    assert models_meant(wanted, MODELS) == meant


def test_a_model_that_nothing_has_is_refused_and_nothing_where_there_are_no_gpus() -> None:
    assert models_meant("a10", ()) == frozenset()
    for wanted, hint in (("L4", "there are A10, "), ("A1O", "did you mean A10?")):
        with pytest.raises(NotFound, match=f"no GPU here is of model '{wanted}'") as refused:
            models_meant(wanted, MODELS)
        assert str(refused.value.hint).startswith(hint)
