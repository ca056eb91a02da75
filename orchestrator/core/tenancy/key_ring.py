# SPDX-License-Identifier: Apache-2.0
"""The text of the file with the database's keys: a line each, the newest first.

The first key that was drawn is its origin. What is derived from that one (the audit's proofs and seals, fingerprints of
requests) stays as it is when the key of the secrets is changed; then it has a line of its own.
"""

from __future__ import annotations

_ORIGIN = b"origin:"


def secret_keys(ring: bytes) -> tuple[bytes, ...]:
    """Those that secrets are encrypted with: the first one writes, each reads."""
    return tuple(line for line in ring.split() if not line.startswith(_ORIGIN))


def origin_of(ring: bytes) -> bytes:
    """The key that was drawn first."""
    lines = ring.split()
    origin = next((line.removeprefix(_ORIGIN) for line in lines if line.startswith(_ORIGIN)), None)
    return origin if origin is not None else (lines or [b""])[-1]


def with_new_key(ring: bytes, key: bytes) -> bytes:
    """``key`` writes from now on, those before still read. A ring that has two already stays: it was left half-way."""
    keys = secret_keys(ring)
    if len(keys) == 1:
        keys = (key, *keys)
    return b"\n".join([*keys, _ORIGIN + origin_of(ring)])


def without_old_keys(ring: bytes) -> bytes:
    """Nothing is encrypted with the older ones any more."""
    return b"\n".join([secret_keys(ring)[0], _ORIGIN + origin_of(ring)])
