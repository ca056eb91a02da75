# SPDX-License-Identifier: Apache-2.0
"""From the command to the provider and back, and what the server then makes of it."""

from __future__ import annotations

import json
import os
import threading
import urllib.request
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.oidc_provider import CLIENT, OidcProvider, oidc_provider
from tests.fakes.running import running_server
from tests.fakes.typed import Cli

FLEET = "groups:\n  - {name: t4, count: 1, gpu_model: Tesla T4, gpus_per_host: 1, vcpus: 8, memory_gib: 32}\n"


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with oidc_provider() as one:
        yield one


@pytest.fixture(scope="module")
def pool(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("pool")
    fleet = directory / "fleet.yaml"
    fleet.write_text(FLEET)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("VGPUCTL_OIDC_ISSUER", provider.issuer)
        patched.setenv("VGPUCTL_OIDC_CLIENT_ID", CLIENT)
        with running_server(directory / "s", "--simulate", str(fleet), module="orchestrator.server.serve") as state:
            yield state


def _visit(address: str) -> bool:
    """What a browser does, beside the command that waits for it."""
    threading.Thread(target=lambda: urllib.request.urlopen(address, timeout=20).read(), daemon=True).start()
    return True


@pytest.fixture
def as_ann(cli: Cli, pool: Path, tmp_path: Path, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("VGPUCTL_STATE", str(pool))
    monkeypatch.setattr(webbrowser, "open", _visit)
    provider.claims, provider.refuses = {"email": "ann@example.org", "email_verified": True}, False
    return cli


def _login(cli: Cli, provider: OidcProvider, file: Path) -> str:
    done = cli("login", "--issuer", provider.issuer, "--client-id", CLIENT, "--save", str(file))
    assert done.code == 0, done.err
    assert file.stat().st_mode & 0o777 == 0o600
    return done.out


def test_who_logs_in_acts_as_the_member_that_somebody_made_of_them(
    as_ann: Cli, provider: OidcProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli, file = as_ann, tmp_path / "token"
    said = _login(cli, provider, file)
    assert file.read_text().strip() not in said
    monkeypatch.setenv("VGPUCTL_TOKEN_FILE", str(file))
    stranger = cli("list-vms")
    assert (stranger.code, "peer.denied" in stranger.err, "oidc:sub:ann" in stranger.err) == (6, True, True)

    monkeypatch.delenv("VGPUCTL_TOKEN_FILE")
    assert cli("tenant", "create", "red").code == 0
    assert cli("tenant", "add-member", "red", "oidc:ann@example.org", "--role", "tenant-admin").code == 0
    monkeypatch.setenv("VGPUCTL_TOKEN_FILE", str(file))
    assert [one["name"] for one in json.loads(cli("tenant", "list", "-o", "json").out)] == ["red"]
    made = cli("create-vm", "train", "--tenant", "red", "--profile", "GRID T4-2Q", "--image", "demo", "--no-start")
    assert made.code == 0, made.err
    assert "tenant.unknown" in cli("list-vms", "--tenant", "default").err

    monkeypatch.delenv("VGPUCTL_TOKEN_FILE")
    assert "oidc:sub:ann" in {one["actor"] for one in json.loads(cli("audit", "list", "-o", "json").out)}


def test_a_login_that_is_over_is_told(
    as_ann: Cli, provider: OidcProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    provider.claims = {"exp": 1}
    _login(as_ann, provider, file)
    monkeypatch.setenv("VGPUCTL_TOKEN_FILE", str(file))
    refused = as_ann("list-vms")
    assert (refused.code, "token.refused" in refused.err, "vgpuctl login" in refused.err) == (6, True, True)


def test_a_refused_login_leaves_the_token_that_was_there(as_ann: Cli, provider: OidcProvider, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("before\n")
    provider.refuses = True
    refused = as_ann("login", "--issuer", provider.issuer, "--client-id", CLIENT, "--save", str(file))
    assert (refused.code, "[login.refused]" in refused.err) == (6, True)
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["token"]
    assert file.read_text() == "before\n"


@pytest.mark.parametrize(
    ("issuer", "code"), [("http://example.org", "login.issuer_invalid"), ("http://127.0.0.1:1", "login.unreachable")]
)
def test_a_wrong_provider_is_one_line(as_ann: Cli, tmp_path: Path, issuer: str, code: str) -> None:
    refused = as_ann("login", "--issuer", issuer, "--client-id", CLIENT, "--save", str(tmp_path / "t"))
    assert (refused.code != 0, f"[{code}]" in refused.err, refused.out) == (True, True, "")


@pytest.mark.parametrize(
    "token", ["a\nb", "a\r\nX: y", "\ud800", "a\udfffb", "a b", "", " ", "a\x1b[2J", "\u202eabc", "a" * 20_000, "é"]
)
def test_an_id_token_that_no_header_takes_is_refused_and_nothing_is_left_of_it(
    as_ann: Cli, provider: OidcProvider, tmp_path: Path, token: str
) -> None:
    provider.instead["/pool/token"] = json.dumps({"id_token": token}).encode()
    try:
        done = as_ann("login", "--issuer", provider.issuer, "--client-id", CLIENT, "--save", str(tmp_path / "token"))
    finally:
        provider.instead.clear()
    assert (done.code, "login.refused" in done.err) == (6, True), done.err
    assert [path.name for path in tmp_path.iterdir() if "token" in path.name] == []


def test_an_address_to_log_in_at_that_no_terminal_should_show_is_refused(
    as_ann: Cli, provider: OidcProvider, tmp_path: Path
) -> None:
    places = {"issuer": provider.issuer, "token_endpoint": f"{provider.issuer}/token", "jwks_uri": "x"}
    for where in ("https://a.test/\ud800", "https://a.test/\x1b[2J", "https://a.test/a b", "https://\u0430.test/"):
        said = json.dumps({**places, "authorization_endpoint": where}).encode()
        provider.instead["/pool/.well-known/openid-configuration"] = said
        done = as_ann("login", "--issuer", provider.issuer, "--client-id", CLIENT, "--save", str(tmp_path / "token"))
        provider.instead.clear()
        assert (done.code, "login.issuer_invalid" in done.err) == (2, True), done.err


@pytest.fixture(scope="module")
def strict(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A pool whose admins need a second factor, and tokens with an end."""
    directory = tmp_path_factory.mktemp("strict")
    (directory / "s").mkdir(mode=0o700)
    (directory / "s" / "config.yaml").write_text(
        f"oidc_issuer: {provider.issuer}\noidc_client_id: {CLIENT}\noidc_required_acr: gold\nadmin_token_max_days: 30\n"
    )
    fleet = directory / "fleet.yaml"
    fleet.write_text(FLEET)
    with running_server(directory / "s", "--simulate", str(fleet), module="orchestrator.server.serve") as state:
        yield state


@pytest.mark.parametrize(
    ("tenant", "role", "refused"),
    [
        ("*", "admin", True), ("*", "operator", True), ("*", "read-only", False),
        ("default", "tenant-admin", True), ("default", "tenant-user", False),
    ],
)  # fmt: skip
def test_who_administers_logs_in_with_what_the_site_asks_for(
    as_ann: Cli, strict: Path, provider: OidcProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    tenant: str, role: str, refused: bool,
) -> None:  # fmt: skip
    cli, file = as_ann, tmp_path / "token"
    monkeypatch.setenv("VGPUCTL_STATE", str(strict))
    provider.claims = {"sub": f"{role}-of-them", "acr": "0", "amr": ["pwd"]}
    assert cli("tenant", "add-member", tenant, f"oidc:sub:{role}-of-them", "--role", role).code == 0
    _login(cli, provider, file)
    monkeypatch.setenv("VGPUCTL_TOKEN_FILE", str(file))
    weak = cli("list-vms")
    assert weak.code == (6 if refused else 0), weak.err
    if refused:
        assert "acr gold, it has '0' [login.too_weak]" in weak.err
        assert "vgpuctl login --acr gold" in weak.err
    again = cli("login", "--issuer", provider.issuer, "--client-id", CLIENT, "--save", str(file), "--acr", "gold")
    assert (again.code, cli("list-vms").code) == (0, 0)


def test_tokens_of_who_administers_end_in_time(as_ann: Cli, strict: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUCTL_STATE", str(strict))
    everywhere = ("token", "create", "--tenant", "*", "--role")
    for words in ((*everywhere, "admin"), (*everywhere, "operator", "--lifetime", "31d"),
                  ("token", "create", "--role", "tenant-admin", "--lifetime", "721h")):  # fmt: skip
        refused = as_ann(*words)
        assert (refused.code, refused.out) == (2, "")
        assert "lives at most 30d here [token.lifetime]" in refused.err
        assert "--lifetime 30d" in refused.err
    made = as_ann(*everywhere, "admin", "--lifetime", "30d", "-o", "json")
    assert as_ann(*everywhere, "read-only").code == as_ann("token", "create").code == 0
    monkeypatch.setenv("VGPUCTL_TOKEN", json.loads(made.out)["token"])
    assert as_ann(*everywhere, "admin").code == 0, "it ends with the token that makes it"


def test_a_pipe_or_device_that_a_token_is_saved_to_is_still_one(
    as_ann: Cli, provider: OidcProvider, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = as_ann("login", "--issuer", provider.issuer, "--client-id", CLIENT, "--save", str(pipe))
        assert done.code == 0, done.err
        assert os.read(reader, 10_000).count(b".") == 2
    finally:
        os.close(reader)
    assert pipe.is_fifo()
