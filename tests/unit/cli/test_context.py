# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.client.contexts import ClientContext, Contexts, load, save
from orchestrator.core.errors import InvalidInput
from tests.fakes.certificate import over_tls
from tests.fakes.ports import own_port
from tests.fakes.running import running_server
from tests.fakes.typed import Cli


@dataclass(frozen=True)
class Elsewhere:
    """A server that is reached over TLS, and on its own machine by its socket."""

    url: str
    certificate: Path
    state: Path


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    directory = tmp_path_factory.mktemp("elsewhere")
    tls = over_tls(directory)
    with running_server(directory / "state", "--tls", tls.listen, str(tls.certificate), str(tls.key)) as state:
        yield Elsewhere(tls.url, tls.certificate, state)


@pytest.fixture
def anywhere(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """No directory is chosen by the environment, so contexts count."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nothing-here"))
    monkeypatch.delenv("VGPUCTL_STATE")
    return cli


def _token(elsewhere: Elsewhere, file: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Path:
    with monkeypatch.context() as there:
        there.setenv("VGPUCTL_STATE", str(elsewhere.state))
        made = cli("token", "create", "--tenant", "*", "--role", "operator", "--save", str(file))
    assert made.code == 0, made.err
    return file


def test_a_server_elsewhere_is_reached_over_tls_with_a_token(
    anywhere: Cli, elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = _token(elsewhere, tmp_path / "token", monkeypatch, anywhere)
    trusted = ("--ca-file", str(elsewhere.certificate))
    assert anywhere("context", "add", "far", "--url", elsewhere.url, *trusted, "--token-file", str(token)).code == 0
    assert anywhere("create-vm", "one", "--profile", "t4-small", "--image", "guest").code == 0
    assert [vm["name"] for vm in json.loads(anywhere("list-vms", "-o", "json").out)] == ["one"]
    refused = anywhere("server", "stop")
    assert (refused.code, "context.elsewhere" in refused.err) == (2, True)

    assert anywhere("context", "add", "nobody", "--url", elsewhere.url, *trusted).code == 0
    monkeypatch.setenv("VGPUCTL_CONTEXT", "nobody")
    assert "token.missing" in anywhere("list-vms").err
    monkeypatch.setenv("VGPUCTL_CONTEXT", "stranger")
    assert anywhere("context", "add", "stranger", "--url", elsewhere.url, "--token-file", str(token)).code == 0
    assert "[server.not_trusted]" in anywhere("list-vms").err
    monkeypatch.setenv("VGPUCTL_CONTEXT", "away")
    assert anywhere("context", "add", "away", "--url", f"https://127.0.0.1:{own_port()}").code == 0
    away = anywhere("list-vms").err
    assert "[server.unreachable]" in away
    assert ("server status" in away, "context list" in away) == (False, True), "what helps for a server elsewhere"


def test_contexts_are_added_used_listed_and_forgotten(anywhere: Cli, state: Path, elsewhere: Elsewhere) -> None:
    assert anywhere("context", "list").out == "no contexts: commands go to the server here\n"
    for name, directory in (("first", state), ("second", elsewhere.state)):
        assert anywhere("context", "add", name, "--state", str(directory)).code == 0
    assert json.loads(anywhere("server", "status", "-o", "json").out)["state"] == str(state)
    assert anywhere("context", "use", "second").out == "commands go to second\n"
    assert json.loads(anywhere("server", "status", "-o", "json").out)["state"] == str(elsewhere.state)
    assert [row["name"] for row in json.loads(anywhere("context", "list", "-o", "json").out) if row["current"]] == [
        "second"
    ]
    assert anywhere("context", "remove", "second").code == 0
    assert json.loads(anywhere("server", "status", "-o", "json").out)["running"] is False
    assert anywhere("context", "use").out == "commands go to the server here\n"


def test_a_chosen_state_directory_wins_over_the_current_context_and_a_chosen_context_over_both(
    cli: Cli, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert cli("context", "add", "other", "--state", str(tmp_path / "other")).code == 0
    assert json.loads(cli("server", "status", "-o", "json").out)["state"] == str(state)
    monkeypatch.setenv("VGPUCTL_CONTEXT", "other")
    assert json.loads(cli("server", "status", "-o", "json").out)["state"] == str(tmp_path / "other")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("add", "x"), "context.incomplete"),
        (("add", "x", "--url", "https://h", "--state", "/s"), "context.incomplete"),
        (("add", "x", "--url", "http://h:1"), "context.url_invalid"),
        (("add", "x", "--url", "https://h:99999"), "context.url_invalid"),
        (("add", "x", "--url", "https://h/path"), "context.url_invalid"),
        (("add", "A b", "--url", "https://h"), "context."),
        (("use", "x"), "context.unknown"),
        (("remove", "x"), "context.unknown"),
        (("set", "x", "--url", "https://h"), "context.unknown"),
        (("set", "known", "--url", "https://h", "--state", "/s"), "context.incomplete"),
        (("set", "known", "--url", "http://h:1"), "context.url_invalid"),
        (("set", "known", "--ca-file", "/nonexistent"), "ca_file.unreadable"),
        (("set", "known", "--tenant", "A b"), "tenant.name_invalid"),
        (("add", "known", "--url", "https://elsewhere"), "context.exists"),
    ],
)
def test_a_wrong_context_is_refused_and_nothing_changes(anywhere: Cli, arguments: tuple[str, ...], code: str) -> None:
    assert anywhere("context", "add", "known", "--url", "https://h").code == 0
    before = anywhere("context", "list", "-o", "json").out
    refused = anywhere("context", *arguments)
    assert (refused.code != 0, refused.out, f"[{code}" in refused.err) == (True, "", True)
    assert anywhere("context", "list", "-o", "json").out == before


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"current": 1, "contexts": {"a": {"colour": "red"}}}', "\xff", "{" * 9999]
)
def test_a_file_that_holds_no_contexts_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "contexts.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput) as refused:
        load(file)
    assert refused.value.code == "context.file_invalid"


def test_a_context_is_corrected_and_the_refusal_of_add_says_how(anywhere: Cli, tmp_path: Path) -> None:
    assert anywhere("context", "add", "pool", "--url", "https://h:1", "--tenant", "web").code == 0
    (tmp_path / "my token").write_text("t\n")
    (tmp_path / "my token").chmod(0o600)
    refused = anywhere("context", "add", "pool", "--url", "https://h:2", "--token-file", str(tmp_path / "my token"))
    hint = next(line for line in refused.err.splitlines() if "context set" in line)
    assert anywhere(*shlex.split(hint.partition("vgpuctl ")[2])).code == 0
    (row,) = json.loads(anywhere("context", "list", "-o", "json").out)
    assert (row["url"], row["tenant"], row["token_file"]) == ("https://h:2", None, str(tmp_path / "my token"))
    assert anywhere("context", "set", "pool", "--tenant", "ml").code == 0
    assert anywhere("context", "set", "pool", "--state", str(tmp_path)).code == 0
    (row,) = json.loads(anywhere("context", "list", "-o", "json").out)
    assert (row["url"], row["state"], row["tenant"], row["current"]) == (None, str(tmp_path), "ml", True)


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    known = Contexts(current="a").added(ClientContext(name="a", url="https://h:1", token_file="/t", ca_file="/c"))
    save(tmp_path / "new" / "contexts.json", known)
    assert load(tmp_path / "new" / "contexts.json") == known


def test_an_authority_that_is_none_is_refused(anywhere: Cli, tmp_path: Path) -> None:
    file = tmp_path / "none"
    add = ("context", "add", "x", "--url", "https://127.0.0.1:1", "--ca-file", str(file))
    assert "[ca_file.unreadable]" in anywhere(*add).err
    file.write_text("no certificate")
    assert "[ca_file.no_certificate]" in anywhere(*add).err
    file.write_text("-----BEGIN CERTIFICATE-----")
    assert anywhere(*add).code == 0
    file.unlink()
    refused = anywhere("list-vms").err
    assert "none cannot be read: there is no such file [context.ca_unusable]" in refused


def test_a_context_of_the_environment_that_is_unknown_is_refused(
    anywhere: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGPUCTL_CONTEXT", "nowhere")
    assert "context.unknown" in anywhere("list-vms").err


def test_the_page_for_who_got_a_token_does_what_it_says(
    anywhere: Cli, elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs/howto/you-got-a-token.md").read_text()
    monkeypatch.chdir(tmp_path)
    _token(elsewhere, tmp_path / "pool.token", monkeypatch, anywhere)
    (tmp_path / "pool.pem").write_bytes(elsewhere.certificate.read_bytes())
    here = page.replace("https://pool.example.org:8443", elsewhere.url)
    here = here.replace("t4-4q", "t4-small").replace("debian-13", "guest")
    commands = [line.split()[1:] for line in re.findall(r"^   (vgpuctl .*)$", here, re.MULTILINE)]
    done = {" ".join(words[:2]): anywhere(*words) for words in commands}
    assert [(words, one.err) for words, one in done.items() if one.code != 0] == []
    assert "notebook" in done["list-vms"].out
