# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core import errors
from orchestrator.core.errors import FAMILIES, Bug, Reason, VgpuctlError, error_from_dict, error_to_dict

_EXIT_CODES = {
    "invalid_input": (400, 2), "not_found": (404, 4), "conflict": (409, 5), "denied": (403, 6),
    "quota_exceeded": (403, 7), "no_capacity": (507, 8), "world": (502, 9), "world_retryable": (502, 9),
    "world_fatal": (502, 9), "world_unknown": (502, 9), "stuck": (500, 10), "bug": (500, 70),
}  # fmt: skip


def test_every_error_class_is_in_the_catalogue_with_its_status_and_exit_code() -> None:
    found = {name: (cls.http_status, cls.exit_code) for name, cls in FAMILIES.items()}
    assert found == _EXIT_CODES
    classes = {c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, VgpuctlError)}
    assert classes - {VgpuctlError} == set(FAMILIES.values())


@given(
    family=st.sampled_from(sorted(FAMILIES)),
    message=st.text(),
    hint=st.none() | st.text(),
    reasons=st.lists(st.builds(Reason, code=st.text(), message=st.text(), subjects=st.tuples(st.text()))),
)
def test_an_error_survives_the_wire_whole(family: str, message: str, hint: str | None, reasons: list[Reason]) -> None:
    error = FAMILIES[family]("a.code", message, hint=hint, details="d", reasons=tuple(reasons))
    back = error_from_dict(json.loads(json.dumps(error_to_dict(error))))
    assert type(back) is type(error)
    assert error_to_dict(back) == error_to_dict(error)


@pytest.mark.parametrize(
    "malformed", [{}, {"family": "no-such"}, {"family": 7, "reasons": "x"}, {"code": None, "reasons": ["text"]}]
)
def test_a_malformed_error_from_the_wire_is_still_an_error(malformed: dict[str, object]) -> None:
    assert isinstance(error_from_dict(malformed), Bug)
