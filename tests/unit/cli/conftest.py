# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.cli.main import run
from tests.fakes.running import running_server


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Cli = Callable[..., Outcome]


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("state")) as directory:
        yield directory


@pytest.fixture
def cli(state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("VGPUCTL_STATE", str(state))
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = run(list(arguments))
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err)

    return call
