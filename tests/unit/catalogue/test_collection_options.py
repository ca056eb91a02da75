# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tools.collection_options import MODULES, Module


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_collection_takes_each_member_of_a_form(module: Module) -> None:
    text = module.path.read_text(encoding="utf-8")
    assert module.written(text) == text, "make docs"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_what_a_module_leaves_out_is_a_member_of_its_form(module: Module) -> None:
    assert module.by_hand <= set(module.form.model_fields)
