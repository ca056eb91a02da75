# SPDX-License-Identifier: Apache-2.0
"""Offerings between a file, the core's words and the API's JSON."""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.client.connection import Json
from orchestrator.core.offerings.offering import Offering


def request_of(offering: Offering, *, look_up: bool) -> dict[str, object]:
    """What the API is asked. ``look_up``: whether the names it has must be in the tables."""
    values = asdict(offering)
    del values["origin"]
    lists = {"gpu_models": list(offering.gpu_models), "provision": list(offering.provision)}
    return {**values, **lists, "hosts": dict(offering.hosts), "unlisted": not look_up}


def offering_of(answer: Json) -> Offering:
    """What the API says of an offering of the site."""
    return Offering.from_fields({**answer, "origin": "site", "hosts": tuple(sorted(answer["hosts"].items()))})
