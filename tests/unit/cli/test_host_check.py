# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.typed import Cli
from tests.fakes.world import FINGERPRINT


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    return path


def test_an_enrolled_host_that_lacks_nothing_is_said_so(cli: Cli) -> None:
    done = cli("host", "check", "gpu1")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "nothing is missing"


def test_a_host_that_is_not_added_is_checked_by_its_address_and_not_kept(cli: Cli, key: Path) -> None:
    before = cli("host", "list").out
    words = ("host", "check", "--address", "192.0.2.99", "--provisioning-key", str(key))
    done = cli(*words, "--host-key-fingerprint", FINGERPRINT)
    assert done.code == 3
    assert "install NVIDIA's vGPU host driver" in " ".join(done.out.split())
    assert done.out.splitlines()[-1] == "1 missing"
    assert json.loads(cli(*words, "--yes", "-o", "json").out)["ready"] is False
    assert cli("host", "list").out == before


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "give a host's name or --address"),
        (("gpu1", "--address", "192.0.2.1"), 2, "give a host's name or --address"),
        (("nobody",), 4, "host.unknown"),
        (("../x",), 2, "host.name_invalid"),
        (("--address=-oProxyCommand=x",), 2, "host.address_invalid"),
        (("--address", "192.0.2.1", "--host-key-fingerprint", "SHA256:other"), 9, "host.key_differs"),
    ],
)
def test_what_cannot_be_checked_is_one_line(cli: Cli, key: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = cli("host", "check", *words, *(("--provisioning-key", str(key)) if "--address" in words[:1] else ()))
    assert (done.code, done.out) == (code, "")
    assert said in done.err
