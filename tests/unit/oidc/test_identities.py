# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Iterator

import pytest
from joserfc.jwk import RSAKey

from orchestrator.adapters.state.clock import SystemClock
from orchestrator.core.errors import Denied, InvalidInput, Retryable
from orchestrator.oidc import provider as provider_module
from orchestrator.oidc.identities import OidcIdentities, Strength
from orchestrator.oidc.provider import Provider, check_address
from tests.fakes.dripping import BODY, CHUNK, HEAD, STATUS, dripping
from tests.fakes.oidc_provider import CLIENT, OidcProvider, oidc_provider


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with oidc_provider() as one:
        yield one


@pytest.fixture
def identities(provider: OidcProvider) -> OidcIdentities:
    return OidcIdentities(Provider(issuer=provider.issuer), CLIENT, "groups", SystemClock())


def subjects(identities: OidcIdentities, text: str) -> tuple[str, ...]:
    """As the server asks: what there is to wait for is waited for."""
    if (asked := identities.awaited(text)) is not None:
        asked.result(60)
    return identities.login(text).names


def test_a_login_is_known_by_subject_verified_address_and_groups(
    provider: OidcProvider, identities: OidcIdentities
) -> None:
    claims = {"email": "ann@example.org", "email_verified": True, "groups": ["ml", "all people", 7, "ops"]}
    assert subjects(identities, provider.token(claims)) == (
        "oidc:sub:ann", "oidc:ann@example.org", "oidc:@ml", "oidc:@ops",
    )  # fmt: skip
    assert subjects(identities, provider.token({**claims, "email_verified": "yes"}))[1:] == ("oidc:@ml", "oidc:@ops")
    assert subjects(identities, provider.token({"aud": ["other", CLIENT], "azp": CLIENT})) == ("oidc:sub:ann",)
    assert subjects(identities, provider.token({"aud": [CLIENT], "typ": "ID"})) == ("oidc:sub:ann",)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another"}, {"aud": None}, {"iss": "https://elsewhere"}, {"iss": None}, {"sub": None}, {"sub": "a b"},
        {"aud": ["other", CLIENT]}, {"aud": [CLIENT, "other"], "azp": "other"}, {"azp": "other"}, {"azp": 7},
        {"typ": "Bearer"}, {"typ": "Refresh"}, {"typ": None, "azp": ""}, {"sub": 7}, {"exp": None},
        {"exp": 1}, {"exp": "soon"}, {"nbf": 1 << 40},
    ],
    ids=str,
)  # fmt: skip
def test_a_token_that_says_something_else_is_refused(
    provider: OidcProvider, identities: OidcIdentities, claims: dict[str, object]
) -> None:
    with pytest.raises(Denied) as refused:
        subjects(identities, provider.token(claims))
    assert refused.value.code == "token.refused"


@pytest.mark.parametrize(
    ("asked", "claims", "lacks"),
    [
        (Strength(), {}, None),
        (Strength(acr=("gold", "platinum")), {"acr": "platinum"}, None),
        (Strength(acr=("gold",)), {"acr": "gold "}, "acr gold, it has 'gold '"),
        (Strength(acr=("gold",)), {"acr": "0"}, "acr gold, it has '0'"),
        (Strength(acr=("gold",)), {"acr": ["gold"]}, "acr gold, it has ['gold']"),
        (Strength(acr=("gold",)), {}, "acr gold, it has none"),
        (Strength(amr=("mfa", "otp")), {"amr": ["pwd", "otp"]}, None),
        (Strength(amr=("mfa", "otp")), {"amr": ["pwd"]}, "amr mfa or otp, it has 'pwd'"),
        (Strength(amr=("mfa",)), {"amr": "mfa"}, "amr mfa, it has none"),
        (Strength(amr=("mfa",)), {"amr": [7, {"mfa": 1}]}, "amr mfa, it has none"),
        (Strength(acr=("gold",), amr=("mfa",)), {"amr": ["mfa"]}, "acr gold, it has none"),
        (Strength(acr=("gold",), amr=("mfa",)), {"acr": "gold", "amr": ["mfa"]}, None),
    ],
    ids=str,
)
def test_a_login_shows_what_administering_takes_or_lacks_it(
    provider: OidcProvider, asked: Strength, claims: dict[str, object], lacks: str | None
) -> None:
    identities = OidcIdentities(Provider(issuer=provider.issuer), CLIENT, "groups", SystemClock(), asked)
    text = provider.token(claims)
    assert subjects(identities, text) == ("oidc:sub:ann",)
    refused = identities.login(text).too_weak
    assert (refused and refused.message) == (lacks and f"your role takes a login with {lacks}")


def _part(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _signed_with_what_is_public(provider: OidcProvider, body: str) -> str:
    """A server that lets the token choose the algorithm takes the published key for a shared secret."""
    said = f"{_part({'alg': 'HS256', 'kid': 'one'})}.{body}"
    return f"{said}.{_part(hmac.digest(provider.key.as_pem(private=False), said.encode(), 'sha256'))}"


def _forged(provider: OidcProvider) -> list[str]:
    good = provider.token()
    head, body, signature = good.split(".")
    return [
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-4]}AAAA",
        *(provider.token(typ=typ) for typ in ("at+jwt", "application/at+jwt", "logout+jwt", "JWS", "")),
        provider.token(key=RSAKey.generate_key(2048, {"kid": "one"})),
        provider.token(key=RSAKey.generate_key(2048, {"kid": "two"})),
        f"{_part({'alg': 'none'})}.{body}.",
        _signed_with_what_is_public(provider, body),
        "", "x", "a.b.c", "vgpuctl_0123", "\x00.\x00.\x00", "é.é.é",
    ]  # fmt: skip


def test_forged_tokens_are_refused(provider: OidcProvider, identities: OidcIdentities) -> None:
    for text in _forged(provider):
        with pytest.raises(Denied):
            subjects(identities, text)


class Clock(SystemClock):
    later = 0.0

    def monotonic(self) -> float:
        return self.later


def test_a_new_key_is_taken_up_though_not_each_time_somebody_names_one(provider: OidcProvider) -> None:
    clock = Clock()
    identities = OidcIdentities(Provider(issuer=provider.issuer), CLIENT, "groups", clock)
    subjects(identities, provider.token())
    old, provider.key = provider.key, RSAKey.generate_key(2048, {"kid": "new"})
    with pytest.raises(Denied):
        subjects(identities, provider.token())
    clock.later = 31.0
    assert subjects(identities, provider.token()) == ("oidc:sub:ann",)
    with pytest.raises(Denied):
        subjects(identities, provider.token(key=old))


def test_a_key_that_nobody_published_is_asked_for_once(provider: OidcProvider) -> None:
    clock = Clock()
    identities = OidcIdentities(Provider(issuer=provider.issuer), CLIENT, "groups", clock)
    forged = provider.token(key=RSAKey.generate_key(2048, {"kid": "forged"}))
    asked = 0
    for _ in range(10):
        clock.later += 20.0
        asked += identities.awaited(forged) is not None
        with pytest.raises(Denied):
            subjects(identities, forged)
    assert asked == 1


def test_known_keys_go_on_for_a_day_while_the_provider_is_away(provider: OidcProvider) -> None:
    clock = Clock()
    identities = OidcIdentities(Provider(issuer=provider.issuer), CLIENT, "groups", clock)
    token = provider.token()
    subjects(identities, token)
    provider.away = True
    for clock.later in (3700.0, 40000.0, 86000.0):
        assert subjects(identities, token) == ("oidc:sub:ann",)
    clock.later = 87000.0
    with pytest.raises(Retryable) as told:
        subjects(identities, token)
    provider.away = False
    assert provider.issuer not in f"{told.value.message} {told.value.hint} {told.value.details}"


def test_a_provider_that_is_not_there_or_another_one_is_told(provider: OidcProvider) -> None:
    for issuer in ("http://127.0.0.1:1", provider.issuer + "/other", provider.issuer + "/"):
        with pytest.raises(Retryable) as told:
            subjects(OidcIdentities(Provider(issuer=issuer), CLIENT, "groups", SystemClock()), provider.token())
        assert told.value.code == "login.unreachable"


@pytest.mark.parametrize(
    "url", ["", "http://example.org", "ftp://x", "https:/", "javascript:alert(1)", "http://[", "x"]
)
def test_an_address_without_tls_is_none(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_address(url)
    assert refused.value.code == "login.issuer_invalid"


STRANGE = (
    b"", b"null", b"5", b"[" * 100_000, b'{"a":' * 100_000, b'{"keys":[{"kty":"RSA","n":"\\ud800","e":"AQAB"}]}',
    b"\xff", b'{"keys":5}', b'{"keys":[{"kty":[]}]}', b'{"issuer":"\\ud800"}', b"9" * 10_000,
    b'{"keys":[{"kty":"EC","crv":"P-256","x":"' + b"[" * 1000 + b'","y":"A"}]}',
)  # fmt: skip


@pytest.mark.parametrize("said", STRANGE)
@pytest.mark.parametrize("path", ["/pool/.well-known/openid-configuration", "/pool/keys"])
def test_a_provider_that_answers_something_else_is_told_and_no_thread_ends_in_a_traceback(
    path: str, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[object] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    with oidc_provider() as strange:
        strange.instead[path] = said
        identities = OidcIdentities(Provider(issuer=strange.issuer), CLIENT, "groups", SystemClock())
        with pytest.raises(Retryable) as told:
            subjects(identities, strange.token())
        assert told.value.code == "login.unreachable"
    assert ended == []


@pytest.mark.parametrize("head", [b"[" * 40_000, b'{"a":' * 20_000, b'{"alg":[]}', b'{"kid":{}}', b"\xff", b"{"])
def test_a_token_with_a_strange_head_is_refused(
    identities: OidcIdentities, provider: OidcProvider, head: bytes
) -> None:
    parts = [base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (head, b"{}", b"x")]
    with pytest.raises(Denied) as refused:
        subjects(identities, ".".join(parts))
    assert refused.value.code == "token.refused"
    assert subjects(identities, provider.token())


@pytest.mark.parametrize("first", [BODY, HEAD, STATUS, CHUNK])
def test_a_provider_that_answers_for_ever_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, first: bytes) -> None:
    monkeypatch.setattr(provider_module, "_WHOLE_S", 0.3)
    began = time.monotonic()
    with dripping(first) as address, pytest.raises(Retryable) as caught:
        Provider(issuer=f"http://{address}").metadata()
    assert caught.value.code == "login.unreachable"
    assert 0.3 <= time.monotonic() - began < 3
