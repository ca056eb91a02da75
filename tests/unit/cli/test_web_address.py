# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from orchestrator.cli.commands.web import _open, _origin_of
from orchestrator.client.contexts import ClientContext

LOCAL = "http://vgpuctl-0123456789abcdef.localhost:4000"


def test_a_server_elsewhere_does_not_choose_what_is_opened_here() -> None:
    context = ClientContext(name="pool", url="https://pool.test:8443")
    assert _origin_of(context, "file:///etc/passwd") == "https://pool.test:8443"


@pytest.mark.parametrize("context", [None, ClientContext(name="here", state="/srv/vgpuctl")])
def test_a_server_of_this_machine_names_its_own_port(context: ClientContext | None) -> None:
    assert _origin_of(context, LOCAL) == LOCAL


def test_a_browser_is_started_with_no_ticket_among_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(webbrowser, "open", started.append)
    for ticket in ("first", "second&<"):
        _open(f"{LOCAL}/web/ticket#{ticket}")
    (file,) = tmp_path.iterdir()
    assert started == [file.as_uri()] * 2
    assert file.stat().st_mode & 0o777 == 0o600
    assert f'url={LOCAL}/web/ticket#second&amp;&lt;"' in file.read_text()


def test_a_browser_that_cannot_be_led_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(webbrowser, "open", lambda _: pytest.fail("it was opened"))
    _open(LOCAL)
    assert "open it yourself" in capsys.readouterr().err
