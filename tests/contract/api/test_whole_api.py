# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy, one_of
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance
from schemathesis.specs.openapi.schemas import OpenApiSchema

from tests.contract.api.real_app import furnished_plane, real_app
from tests.fakes.control_plane import ControlPlane
from tools.api_description import FILE

LIMIT_S = 300.0
SHARE, WHOLE = 10, 500
"""Cases for each route: in ``make test``, and in ``make soak``, where they are more than 10,000 together."""


JUDGED_HERE: Final[list[schemathesis.CheckFunction]] = [not_a_server_error, positive_data_acceptance]
"""Hosts that fail are 502 and 507. What a schema cannot say (that an image exists) is refused with 400."""


def _no_bug(_: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]) -> None:
    assert response.status_code != 500, f"{case.method} {case.path}: {response.content!r}"
    assert b"Traceback" not in response.content


def _routes() -> list[tuple[str, str]]:
    """As they are kept, which test_written_models.py compares: the description itself takes each worker a second."""
    kept = json.loads(FILE.read_text(encoding="utf-8"))["routes"]
    return [(method, path) for method, paths in kept.items() for path in paths]


ROUTES = _routes()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> schemathesis.BaseSchema:
    """Its classes are imported above: Python 3.11 may fail to parse them beside threads that import."""
    plane = furnished_plane(tmp_path_factory.mktemp("plane"))
    described = _described(plane)
    assert isinstance(described, OpenApiSchema)
    return described


def _described(plane: ControlPlane) -> schemathesis.BaseSchema:
    checks = {
        "negative_data_rejection": {"expected-statuses": ["4xx", "5xx"]},  # by default all 4xx but 412
        "positive_data_acceptance": {"expected-statuses": ["2xx", "401", "403", "404", "409", "426", "5xx"]},
    }
    config = schemathesis.Config.from_dict({"checks": checks, "generation": {"with-security-parameters": False}})
    # By default in ten seconds, which the description takes on a machine with much else to do.
    return schemathesis.openapi.from_asgi("/v1/openapi.json", real_app(plane), config=config, timeout=LIMIT_S)


KNOWN = {
    "/v1/vms": {"name": "train"}, "/v1/hosts": {"name": "t4"}, "/v1/images": {"name": "guest"},
    "/v1/gpus": {"host": "t4", "address": "0000:41:00.0"}, "/v1/profiles": {"name": "GRID T4-2Q"},
}  # fmt: skip
SENSIBLE = {"image": "guest", "profile": "GRID T4-1Q", "network": "default"}


def _cases(operation: schemathesis.APIOperation[Any, Any, Any, Any]) -> SearchStrategy[schemathesis.Case[Any]]:
    """Requests that the description allows, the same about objects that exist, and requests that it forbids."""
    known = next((names for prefix, names in KNOWN.items() if operation.path.startswith(f"{prefix}/{{")), None)
    return one_of(
        operation.as_strategy(),
        operation.as_strategy(path_parameters=known).map(_sensible),
        operation.as_strategy(schemathesis.GenerationMode.NEGATIVE),
    )


def _sensible(case: schemathesis.Case[Any]) -> schemathesis.Case[Any]:
    if isinstance(case.body, dict):
        # A body of its own: one that is kept to be tried again with a change must stay what it was judged as.
        case.body = {**case.body, **{key: value for key, value in SENSIBLE.items() if key in case.body}}
    return case


def _fuzz(api: schemathesis.BaseSchema, route: tuple[str, str], cases: int) -> int:
    """Send so many requests, right ones and wrong ones; schemathesis' own checks judge the answers."""
    method, path = route
    sent = 0

    @settings(max_examples=cases, suppress_health_check=[*HealthCheck])
    @given(case=_cases(api[path][method]))
    def request(case: schemathesis.Case[Any]) -> None:
        nonlocal sent
        sent += 1
        case.call_and_validate(additional_checks=[_no_bug], excluded_checks=JUDGED_HERE)

    request()
    return sent


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_every_answer_is_one_that_the_description_allows(api: schemathesis.BaseSchema, route: tuple[str, str]) -> None:
    assert _fuzz(api, route, SHARE)


@pytest.mark.soak
def test_ten_thousand_requests_and_none_gets_another_answer(tmp_path: Path) -> None:
    plane = furnished_plane(tmp_path)
    api = _described(plane)
    assert sum(_fuzz(api, route, WHOLE) for route in ROUTES) >= 10_000
