# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.core.errors import InvalidInput
from orchestrator.core.labels import check_labels, parse_labels, parse_selector, selects

LABELS = check_labels({"rack": "3", "spare": ""})


@pytest.mark.parametrize(
    ("selector", "picked"),
    [
        ("rack=3", True), ("rack=4", False), ("rack!=4", True), ("rack!=3", False), ("spare", True), ("!spare", False),
        ("none", False), ("!none", True), ("none!=x", True), ("rack=3,spare", True), ("rack=3, !spare", False),
    ],
)  # fmt: skip
def test_a_selector_picks_when_all_its_terms_hold(selector: str, picked: bool) -> None:
    assert selects(parse_selector(selector), LABELS) is picked


@pytest.mark.parametrize("text", ["", ",", "rack==3", "rack=3,", "!rack=3", "Rack", "rack=a b", "rack=\n", "a" * 64])
def test_a_selector_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_selector(text)
    assert refused.value.code == "label.selector_invalid"


@pytest.mark.parametrize("text", ["rack", "=3", "Rack=3", "rack=a b", "rack=\x1b", "-a=1", "a=" + "x" * 64])
def test_a_label_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_labels([text])
    assert refused.value.code == "label.invalid"


def test_there_are_at_most_32_labels() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_labels({f"k{number}": "" for number in range(33)})
    assert refused.value.code == "label.too_many"
