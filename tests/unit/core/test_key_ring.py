# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from orchestrator.core.tenancy.key_ring import origin_of, secret_keys, with_new_key, without_old_keys


def test_a_file_of_one_key_is_a_ring() -> None:
    assert (secret_keys(b"a\n"), origin_of(b"a\n")) == ((b"a",), b"a")


def test_the_origin_stays_and_the_old_key_goes() -> None:
    ring = with_new_key(b"a", b"b")
    assert (secret_keys(ring), origin_of(ring)) == ((b"b", b"a"), b"a")
    ring = without_old_keys(ring)
    assert (secret_keys(ring), origin_of(ring)) == ((b"b",), b"a")
    ring = without_old_keys(with_new_key(ring, b"c"))
    assert (secret_keys(ring), origin_of(ring)) == ((b"c",), b"a")


def test_a_ring_that_was_left_half_way_takes_no_third_key() -> None:
    ring = with_new_key(b"a", b"b")
    assert with_new_key(ring, b"c") == ring
