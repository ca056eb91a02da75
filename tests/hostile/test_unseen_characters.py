# SPDX-License-Identifier: Apache-2.0
"""No text that people write freely holds a character that drives a terminal, turns its direction or is not seen."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.testclient import TestClient

from orchestrator.core.units import GIB
from orchestrator.core.vms.image import NewImage
from tests.contract.api.real_app import furnished_plane, real_app
from tests.hostile.spoiling import spoilt

_TURNS: Final = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN"})
UNSEEN: Final = tuple(
    letter for letter in map(chr, (*range(0xD800), *range(0xE000, 0x10000)))
    if unicodedata.category(letter) in {"Cc", "Zl", "Zp"} or letter in "\u061c\u200e\u200f"
    or (unicodedata.category(letter) == "Cf" and unicodedata.bidirectional(letter) in _TURNS)
)  # fmt: skip
FREE: Final = (
    ("PATCH", "/v1/tenants/default", "description"),
    ("PATCH", "/v1/networks/site", "description"),
    ("PATCH", "/v1/tenants/default/networks/own", "description"),
    ("PATCH", "/v1/images/guest", "description"),
    ("PATCH", "/v1/volumes/data", "description"),
    ("POST", "/v1/hosts/t4/cordon", "reason"),
)
OTHERS: Final = frozenset(
    {"user_data", "provision_secrets", "secrets", "provisioning_key", "key", "signature", "source"}
)
"""Fields that hold a file of several lines, a secret that nobody is shown, or a path that is looked up."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    plane = furnished_plane(Path(tmp_path_factory.mktemp("unseen")))
    plane.services.networks.add("site", None)
    plane.services.networks.add("own", None, "default")
    plane.services.images.add(NewImage(name="guest", source="/guest.qcow2"))
    plane.services.volumes.create("default", "data", GIB)
    yield TestClient(real_app(plane))
    plane.reconciler.close()
    plane.store.close()


@pytest.mark.parametrize(("method", "path", "field"), FREE)
def test_a_free_text_takes_letters_of_all_scripts_and_none_that_is_not_seen(
    client: TestClient, method: str, path: str, field: str
) -> None:
    for letter in UNSEEN:
        answer = client.request(method, path, json={field: f"a{letter}b"})
        said = answer.json()
        assert answer.status_code == 400, hex(ord(letter))
        expected = "request.text_invalid" if letter == "\0" else "request.invalid"
        assert said["code"] == expected, (hex(ord(letter)), said)
        if letter != "\0":
            assert said["detail"] == f"{field}: has a character that cannot be seen"
    assert client.request(
        method, path, json={field: "Grafikkarten f\u00fcr \u05d0\u05d1 \u0645\u062b \u8a08\u7b97 \U0001f600"}
    ).is_success


def test_each_text_of_each_request_is_refused_with_such_a_character_or_is_no_line(client: TestClient) -> None:
    described: dict[str, Any] = client.get("/v1/openapi.json").json()
    taken = []
    for path, verbs in described["paths"].items():
        for verb, one in verbs.items():
            schema = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            examples = described["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], {})
            for example in examples.get("examples", ()):
                plain = {name: value for name, value in example.items() if name not in OTHERS}
                for letter in "\x9b\u202e":
                    for body in spoilt(plain, f"a{letter}b"):
                        answer = client.request(verb, path.replace("{", "").replace("}", ""), json=body)
                        if answer.status_code < 400:
                            taken.append((verb, path, body))
    assert taken == []
