# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.byte_cache import ByteCache

_MAX = 1000


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 700), st.booleans())))
def test_it_never_keeps_more_than_it_may_and_never_gives_what_was_replaced(
    asked: list[tuple[int, int, bool]],
) -> None:
    cache, newest = ByteCache[object](_MAX), dict[int, object]()
    for key, size, puts in asked:
        if puts:
            newest[key] = object()
            cache.put(key, newest[key], size)
        else:
            assert cache.get(key) in {None, newest.get(key)}
        assert cache.size <= _MAX


def test_what_is_asked_for_stays_while_others_come_and_go() -> None:
    cache = ByteCache[str](_MAX)
    cache.put("kept", "value", 10)
    for number in range(1000):
        cache.put(number, "other", 100)
        assert cache.get("kept") == "value"
    assert cache.get(0) is None


def test_what_is_too_large_is_not_kept_and_neither_is_what_it_replaces() -> None:
    cache = ByteCache[str](_MAX)
    cache.put("key", "small", 1)
    cache.put("key", "large", _MAX)
    assert cache.get("key") is None
    assert cache.size == 0
