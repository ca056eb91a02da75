# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.core.errors import InvalidInput
from orchestrator.core.labels import changed_labels, check_labels, parse_labels, parse_selector, selects

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


@pytest.mark.parametrize("text", ["", ",", "rack==3", "rack=3,", "!rack=3", "Rack/x", "rack=a b", "rack=\n", "a" * 64])
def test_a_selector_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_selector(text)
    assert refused.value.code == "label.selector_invalid"


@pytest.mark.parametrize(
    "text",
    [
        "rack", "=3", "Example.org/rack=3", "rack=a b", "rack=\x1b", "-a=1", "a=" + "x" * 64, "Rack-=3",
        "A" * 64 + "=1", "a/" + "b" * 64 + "=1", "a" * 254 + "/b=1", "A/B=1", "a/B/c=1", "/a=1", "a/=1", "\u0410=1",
    ],
)  # fmt: skip
def test_a_label_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_labels([text])
    assert refused.value.code == "label.invalid"


def test_there_are_at_most_32_labels() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_labels({f"k{number}": "" for number in range(33)})
    assert refused.value.code == "label.too_many"


@pytest.mark.parametrize(
    "key",
    [
        "Name", "CreatedBy", "app.kubernetes.io/Part_of", "example.org/Name", "X", "a_B-c.D", "a" * 63, "A" * 63,
        "a" * 253 + "/" + "B" * 63, "a/b/c", "9",
    ],
)  # fmt: skip
def test_keys_are_those_of_kubernetes_and_what_they_could_be_before(key: str) -> None:
    assert parse_labels([f"{key}=V"]) == {key: "V"}
    assert check_labels({key: "V"}) == ((key, "V"),)
    assert changed_labels(((key, "V"),), {key: None}) == ()
    assert selects(parse_selector(f"{key}=V,!none"), ((key, "V"),))
    assert not selects(parse_selector(f"!{key}"), ((key, "V"),))


def test_keys_in_other_letters_are_other_keys() -> None:
    assert check_labels({"Name": "1", "name": "2"}) == (("Name", "1"), ("name", "2"))


def test_all_labels_of_a_thing_fit_into_one_record_of_the_audit() -> None:
    assert len(check_labels({f"{number:063}": "v" * 63 for number in range(32)})) == 32
    with pytest.raises(InvalidInput) as refused:
        check_labels({f"{number}.{'a' * 240}/b": "v" * 63 for number in range(20)})
    assert refused.value.code == "label.too_many"
