# SPDX-License-Identifier: Apache-2.0
"""People who come from an identity provider. The run's own provider signs: ``ISV_OIDC_KEY`` is its private key."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.request import urlopen

from joserfc import jwt
from joserfc.jwk import RSAKey

from integrations.isvctl.site import Results, Site, need, refusal
from integrations.isvctl.steps import Output
from vgpuctl import Client

TENANT: Final = "isv-people"
PERSON: Final = "isv-ann"
ADMIN: Final = "isv-root"
REFUSED: Final = ("token.", "access.", "login.")
NO_SECOND_FACTOR: Final = "whoever logged in with a password alone acts as an admin"
SKIPPED: Final[Output] = {
    "success": False, "skipped": True,
    "skip_reason": "ISV_OIDC_ISSUER, ISV_OIDC_AUDIENCE and ISV_OIDC_KEY are not set: nobody here can sign ID tokens",
}  # fmt: skip


@dataclass(frozen=True)
class Signer:
    issuer: str
    audience: str
    key: RSAKey

    @classmethod
    def of(cls, site: Site) -> Signer | None:
        key = site.files("ISV_OIDC_KEY")
        issuer, audience = (site.environment.get(name) for name in ("ISV_OIDC_ISSUER", "ISV_OIDC_AUDIENCE"))
        if not (key and issuer and audience):
            return None
        return cls(issuer, audience, RSAKey.import_key(json.loads(key[0].read_bytes())))

    def token(self, subject: str, claims: Mapping[str, object] | None = None, key: RSAKey | None = None) -> str:
        """An ID token; ``None`` as a claim's value leaves it out."""
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": self.audience, "sub": subject, "iat": now, "exp": now + 600}
        known = {name: value for name, value in {**usual, **(claims or {})}.items() if value is not None}
        return jwt.encode({"alg": "RS256", "kid": self.key.kid, "typ": "JWT"}, known, key or self.key)


def oidc_user_auth_test(site: Site) -> Output:
    signer = Signer.of(site)
    if signer is None:
        return SKIPPED
    results = Results()
    with site.tenant(TENANT) as tenant:
        site.admin.put_member(tenant, f"oidc:sub:{PERSON}", "tenant-user")
        with results.probe("valid_token_accepted") as evidence:
            evidence["actor"] = site.bearer("isv-id", signer.token(PERSON)).whoami()["actor"]
        now = int(time.time())
        for name, claims in (
            ("wrong_issuer_rejected", {"iss": "https://elsewhere.invalid"}),
            ("wrong_audience_rejected", {"aud": "another-client"}),
            ("expired_token_rejected", {"iat": now - 7200, "exp": now - 3600}),
            ("missing_required_claim_rejected", {"exp": None}),
        ):
            with results.probe(name) as evidence:
                evidence["code"] = refusal(site.bearer("isv-id", signer.token(PERSON, claims)).whoami, *REFUSED)
        with results.probe("bad_signature_rejected") as evidence:
            forged = signer.token(PERSON, key=RSAKey.generate_key(2048, {"kid": str(signer.key.kid)}))
            evidence["code"] = refusal(site.bearer("isv-id", forged).whoami, *REFUSED)
    with results.probe("discovery_and_jwks_reachable"):
        told = _fetched(f"{signer.issuer}/.well-known/openid-configuration")
        need(told["issuer"] == signer.issuer, "it calls itself otherwise")
        need(_fetched(str(told["jwks_uri"]))["keys"], "it shows no keys")
    return results.told(
        issuer_url=signer.issuer, audience=signer.audience, target_url=f"{site.url}/v1/whoami", endpoints_tested=1
    )  # fmt: skip


def _fetched(url: str) -> Mapping[str, Any]:
    need(url.startswith(("http://", "https://")), f"{url} is not one to fetch")
    with urlopen(url, timeout=30) as answer:  # noqa: S310 (checked above)
        read: Mapping[str, Any] = json.loads(answer.read())
    return read


def mfa_enforcement(site: Site) -> Output:
    """An admin who logged in with a password alone is no admin; with a second factor they are."""
    signer = Signer.of(site)
    if signer is None:
        return SKIPPED
    results = Results()
    site.admin.put_member("*", f"oidc:sub:{ADMIN}", "admin")
    try:
        weak = site.bearer("isv-weak", signer.token(ADMIN, {"amr": ["pwd"], "acr": "0"}))
        strong = site.bearer("isv-strong", signer.token(ADMIN, {"amr": ["pwd", "otp", "mfa"], "acr": "2"}))
        for name, act in (
            ("admin_account_mfa", _grants), ("interactive_access_mfa", _hosts), ("programmatic_access_mfa", _token),
        ):  # fmt: skip
            with results.probe(name) as evidence:
                act(strong)
                evidence["code"] = refusal(partial(act, weak), *REFUSED, otherwise=NO_SECOND_FACTOR)
    finally:
        site.admin.remove_member("*", f"oidc:sub:{ADMIN}")
    return results.told(interfaces_checked=len(results))


def _grants(who: Client) -> object:
    return who.tokens("*")


def _hosts(who: Client) -> object:
    return who.hosts()


def _token(who: Client) -> object:
    return who.create_token({"tenant": "*", "role": "read-only", "lifetime_s": 60, "name": "isv-made"})
