# SPDX-License-Identifier: Apache-2.0
"""Logs browsers in and checks ID tokens (OpenID Connect Core 1.0 §3.1.3.7) with the keys that their provider
publishes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from joserfc import jws, jwt
from joserfc.errors import ExpiredTokenError

from orchestrator.core.errors import Denied, Retryable
from orchestrator.core.tenancy.tenant import login_names
from orchestrator.oidc import code_flow
from orchestrator.oidc.keys import UNUSABLE, PublishedKeys
from orchestrator.oidc.provider import Provider
from orchestrator.ports.clock import Clock
from orchestrator.ports.identity import Login

ALGORITHMS: Final = ("RS256", "PS256", "ES256")
"""Only those with a public key: a secret shared with the provider could sign as well as check."""
_LEEWAY_S: Final = 60
_MAX_KEY_ID: Final = 200
_PROVIDER_S: Final = 15.0
"""How long a browser's login waits for what the provider publishes."""
_NAME: Final = re.compile(r"[!-~]{1,180}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Strength:
    """How somebody must have logged in who administers (OpenID Connect Core 1.0 §2). Empty: in any way."""

    acr: tuple[str, ...] = ()
    """One of these levels."""
    amr: tuple[str, ...] = ()
    """At least one of these methods (RFC 8176)."""

    def lacking(self, claims: Mapping[str, Any]) -> Denied | None:
        """None: the login shows what is asked for."""
        methods = claims.get("amr")
        used = [method for method in methods if isinstance(method, str)] if isinstance(methods, list) else []
        lacks = []
        if self.acr and claims.get("acr") not in self.acr:
            lacks.append(f"acr {' or '.join(self.acr)}, it has {_told(claims.get('acr'))}")
        if self.amr and not {*self.amr} & {*used}:
            lacks.append(f"amr {' or '.join(self.amr)}, it has {_told(' '.join(used) or None)}")
        if not lacks:
            return None
        level = f" --acr {shlex.quote(self.acr[0])}" if self.acr else ""
        return Denied(
            "login.too_weak",
            f"your role takes a login with {', and '.join(lacks)}",
            hint=f"log in again with a second factor: vgpuctl login{level}",
        )


@dataclass
class OidcIdentities:
    """``audience``: our client id at the provider. ``groups_claim``: where its tokens list groups."""

    provider: Provider
    audience: str
    groups_claim: str
    clock: Clock
    administering: Strength = Strength()
    """How admins, operators and tenants' admins must have logged in."""
    client_secret: str | None = field(default=None, repr=False)
    """Of a client that has one at its provider, for logins of browsers."""
    _keys: PublishedKeys = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._keys = PublishedKeys(self.provider, self.clock)

    def awaited(self, text: str) -> Future[None] | None:
        """See :class:`~orchestrator.ports.identity.Identities`."""
        try:
            return self._keys.awaited(_key_id(text))
        except UNUSABLE:
            return None

    def login(self, text: str) -> Login:
        """See :class:`~orchestrator.ports.identity.Identities`."""
        try:
            claims = self._claims(text)
            return Login(names=_names(claims, self.groups_claim), too_weak=self.administering.lacking(claims))
        except ExpiredTokenError as error:
            raise Denied("token.refused", "the login is over", hint="log in again: 'vgpuctl login --help'") from error
        except UNUSABLE as error:
            raise Denied(
                "token.refused", "this token is not valid", hint="log in again: 'vgpuctl login --help'"
            ) from error

    @property
    def browsers(self) -> OidcIdentities:
        """See :class:`~orchestrator.ports.identity.BrowserLogins`, for the following, too."""
        return self

    @property
    def issuer(self) -> str:
        return self.provider.issuer

    @property
    def levels(self) -> tuple[str, ...]:
        return self.administering.acr

    def begin_login(self, back: str, acr: str | None) -> tuple[str, dict[str, str]]:
        address, attempt = code_flow.begin(self._published(), self.audience, back, acr=acr)
        return address, asdict(attempt)

    def finish_login(self, kept: Mapping[str, str], answer: Mapping[str, str]) -> str:
        attempt = code_flow.Attempt(**kept)
        text = code_flow.redeem(
            self.provider, self._published(), self.audience, attempt, answer, client_secret=self.client_secret
        )
        _wait(self.awaited(text))
        self.login(text)
        if self._claims(text).get("nonce") != attempt.nonce:
            raise code_flow.refused("the token was made for another login")
        return text

    def logout_address(self, back: str) -> str | None:
        """RP-Initiated Logout 1.0. It is shown no token, and so asks the person: many keep addresses."""
        try:
            where = self._keys.metadata().get("end_session_endpoint")
        except Retryable:
            return None
        return None if where is None else code_flow.logout_address(str(where), self.audience, back)

    def _published(self) -> dict[str, Any]:
        _wait(self._keys.awaited(""))
        return self._keys.metadata()

    def _claims(self, text: str) -> dict[str, Any]:
        _key_id(text)  # what is no token at all is told so, whether there are keys or not
        token = jwt.decode(text, self._keys.known(), algorithms=ALGORITHMS)
        jwt.JWTClaimsRegistry(
            now=lambda: int(self.clock.now()),
            leeway=_LEEWAY_S,
            iss={"essential": True, "value": self.provider.issuer},
            aud={"essential": True, "value": self.audience},
            sub={"essential": True},
            exp={"essential": True},
        ).validate(token.claims)
        self._check_purpose(token)
        return token.claims

    def _check_purpose(self, token: jwt.Token) -> None:
        """An ID token that was made for us: other tokens that name us have the same signature. ``typ`` in the head is
        of RFC 9068 and others, the claim is Keycloak's."""
        header, claim = str(token.header.get("typ", "JWT")), token.claims.get("typ", "ID")
        if header.upper() != "JWT" or claim != "ID":
            raise ValueError("a token that shows no login")
        audience, made_for = token.claims["aud"], token.claims.get("azp")
        alone = isinstance(audience, str) or len(audience) == 1
        if made_for != self.audience and not (made_for is None and alone):
            raise ValueError("a login at another client")


def _wait(answered: Future[None] | None) -> None:
    if answered is not None:
        with suppress(TimeoutError):  # what is not there by then is told by who needs it
            answered.result(_PROVIDER_S)


def _key_id(text: str) -> str:
    """Empty: it names none. :raises JoseError: this is no token"""
    return str(jws.extract_compact(text.encode()).protected.get("kid", ""))[:_MAX_KEY_ID]


def _names(claims: Mapping[str, Any], groups_claim: str) -> tuple[str, ...]:
    subject, groups = claims["sub"], claims.get(groups_claim)
    if not _is_name(subject):
        raise ValueError("a subject that cannot be written down")
    email = [claims.get("email")] if claims.get("email_verified") is True else []
    listed = groups if isinstance(groups, list) else []
    return login_names(subject, next(filter(_is_name, email), None), filter(_is_name, listed))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _told(claim: object) -> str:
    return "none" if claim is None else ascii(claim)[:80]
