# SPDX-License-Identifier: Apache-2.0
"""Checks ID tokens (OpenID Connect Core 1.0 §3.1.3.7) with the keys that their provider publishes."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from joserfc import jwt
from joserfc.errors import ExpiredTokenError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet, KeySetSerialization

from orchestrator.core.errors import Denied
from orchestrator.core.tenant import login_names
from orchestrator.oidc.provider import Provider
from orchestrator.ports.clock import Clock

ALGORITHMS: Final = ("RS256", "PS256", "ES256")
"""Only those with a public key: a secret shared with the provider could sign as well as check."""
_LEEWAY_S: Final = 60
_KEYS_KEPT_S: Final = 3600.0
_KEYS_AT_MOST_EVERY_S: Final = 30.0
"""Keys change now and then; a forged key id must not make us ask the provider each time."""
_NAME: Final = re.compile(r"[!-~]{1,180}", re.ASCII)


@dataclass
class OidcIdentities:
    """``audience``: our client id at the provider. ``groups_claim``: where its tokens list groups."""

    provider: Provider
    audience: str
    groups_claim: str
    clock: Clock
    _keys: KeySet | None = field(default=None, init=False)
    _asked_at: float = field(default=float("-inf"), init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def subjects(self, text: str) -> tuple[str, ...]:
        """See :class:`~orchestrator.ports.identity.Identities`."""
        try:
            return _names(self._claims(text), self.groups_claim)
        except ExpiredTokenError as error:
            raise Denied("token.refused", "the login is over", hint="vgpuctl login") from error
        except (JoseError, ValueError, TypeError) as error:
            raise Denied("token.refused", "this token is not valid", hint="vgpuctl login") from error

    def _claims(self, text: str) -> dict[str, Any]:
        try:
            token = jwt.decode(text, self._published(_KEYS_KEPT_S), algorithms=ALGORITHMS)
        except InvalidKeyIdError:
            token = jwt.decode(text, self._published(_KEYS_AT_MOST_EVERY_S), algorithms=ALGORITHMS)
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

    def _published(self, kept_s: float) -> KeySet:
        with self._lock:
            if self._keys is None or self.clock.monotonic() - self._asked_at > kept_s:
                keys = self.provider.get(str(self.provider.metadata().get("jwks_uri")))
                self._keys = KeySet.import_key_set(cast(KeySetSerialization, keys))
                self._asked_at = self.clock.monotonic()
            return self._keys


def _names(claims: Mapping[str, Any], groups_claim: str) -> tuple[str, ...]:
    subject, groups = claims["sub"], claims.get(groups_claim)
    if not _is_name(subject):
        raise ValueError("a subject that cannot be written down")
    email = [claims.get("email")] if claims.get("email_verified") is True else []
    listed = groups if isinstance(groups, list) else []
    return login_names(subject, next(filter(_is_name, email), None), filter(_is_name, listed))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None
