# SPDX-License-Identifier: Apache-2.0
"""The authorization code flow with PKCE (RFC 6749 §4.1, RFC 7636), for whoever is sent back: a command or a page."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from authlib.common.urls import add_params_to_uri
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from orchestrator.core.errors import Denied, InvalidInput
from orchestrator.oidc.provider import Provider, check_address

SCOPE: Final = "openid email profile"
_TOKEN: Final = re.compile("[!-~]{1,16000}", re.ASCII)
"""It goes into a header and a file, of which so much is read (client/token.py)."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What whoever began a login keeps for its end. ``back``: where the browser is sent."""

    back: str
    state: str
    verifier: str
    nonce: str


def begin(published: Mapping[str, Any], client_id: str, back: str, *, acr: str | None = None) -> tuple[str, Attempt]:
    """The address that the browser must visit, and what to keep. ``acr``: the level that the provider is asked for;
    None: it chooses.

    :raises InvalidInput: ``login.issuer_invalid``: what is ``published`` is no address for a browser
    """
    where = str(published.get("authorization_endpoint"))
    check_address(where)
    attempt = Attempt(
        back=back, state=secrets.token_urlsafe(32), verifier=secrets.token_urlsafe(64), nonce=secrets.token_urlsafe(32)
    )
    address = prepare_grant_uri(
        where,
        client_id,
        "code",
        back,
        SCOPE,
        attempt.state,
        code_challenge=create_s256_code_challenge(attempt.verifier),
        code_challenge_method="S256",
        nonce=attempt.nonce,
        acr_values=acr,
    )
    return address, attempt


def redeem(
    provider: Provider,
    published: Mapping[str, Any],
    client_id: str,
    attempt: Attempt,
    answer: Mapping[str, str],
    *,
    client_secret: str | None = None,
) -> str:
    """The ID token for what the browser brought back; who reads its claims compares its nonce. ``client_secret``: of a
    client that has one, sent in the form.

    :raises Denied: ``login.refused``, in the provider's words only where it answers this very attempt
    :raises Retryable: ``login.unreachable``
    """
    if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
        raise refused("the answer is to another login")
    if answer.get("iss", provider.issuer) != provider.issuer:  # RFC 9207
        raise refused("another provider answered")
    if "code" not in answer:
        raise refused(answer.get("error_description") or answer.get("error") or "it gave no code")
    form = {
        "grant_type": "authorization_code", "code": answer["code"], "redirect_uri": attempt.back,
        "client_id": client_id, "code_verifier": attempt.verifier,
    }  # fmt: skip
    if client_secret is not None:
        form["client_secret"] = client_secret
    tokens = provider.post(str(published.get("token_endpoint")), form)
    token = tokens.get("id_token")
    if not isinstance(token, str):
        raise refused(str(tokens.get("error_description") or tokens.get("error") or "it gave no ID token"))
    if _TOKEN.fullmatch(token) is None:
        raise refused("what it gave as an ID token is none")
    return token


def logout_address(where: str, client_id: str, back: str) -> str | None:
    """None: ``where`` is no address for a browser."""
    try:
        check_address(where)
    except InvalidInput:
        return None
    return str(add_params_to_uri(where, [("client_id", client_id), ("post_logout_redirect_uri", back)]))


def refused(details: str) -> Denied:
    """``details``: of the provider."""
    return Denied(
        "login.refused",
        "the provider refused the login",
        details=details[:300],
        hint="log in again; whoever runs the provider knows why it refuses",
    )
