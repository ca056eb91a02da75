# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from orchestrator.reconcile.bounded_pool import MAX_STALLED_FACTOR, BoundedPool

LIMIT_S = 60.0
P = ParamSpec("P")
R = TypeVar("R")


class AtOnce(ThreadPoolExecutor):
    """Does what it is given before it is given more."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        done: Future[R] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def let_go_after(others_done: threading.Event, let_go: threading.Event) -> None:
    others_done.wait(LIMIT_S)
    let_go.set()


def test_many_that_hold_up_whoever_works_on_them_keep_none_of_the_others_from_its_turn() -> None:
    at_once, let_go, others_done = 2, threading.Event(), threading.Event()
    down = at_once * (MAX_STALLED_FACTOR - 1)
    done: list[int] = []

    def work(number: int) -> None:
        if number < down:
            assert let_go.wait(LIMIT_S)
        done.append(number)
        if len(done) == 50:
            others_done.set()

    pool = ThreadPoolExecutor(at_once * MAX_STALLED_FACTOR)
    workers = BoundedPool(pool=pool, at_once=at_once, do=work)
    threading.Thread(target=let_go_after, args=(others_done, let_go), daemon=True).start()
    workers.work(range(down + 50), LIMIT_S)
    assert sorted(done[:50]) == list(range(down, down + 50))
    assert sorted(done) == list(range(down + 50))
    pool.shutdown()


def test_no_more_than_so_many_work_side_by_side() -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def work(_number: int) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        with lock:
            now[0] -= 1

    pool = ThreadPoolExecutor(3 * MAX_STALLED_FACTOR)
    BoundedPool(pool=pool, at_once=3, do=work).work(range(200), LIMIT_S)
    assert most[0] <= 3
    pool.shutdown()


def test_one_that_breaks_is_kept_and_the_others_go_on() -> None:
    def work(number: int) -> None:
        assert number != 3

    pool = ThreadPoolExecutor(2 * MAX_STALLED_FACTOR)
    workers = BoundedPool(pool=pool, at_once=2, do=work)
    workers.work(range(10), LIMIT_S)
    assert [type(error) for error in workers.errors] == [AssertionError]
    pool.shutdown()


def test_what_is_spread_over_time_does_not_begin_before_its_turn() -> None:
    done: list[int] = []
    pool = ThreadPoolExecutor(2 * MAX_STALLED_FACTOR)
    workers = BoundedPool(pool=pool, at_once=2, do=done.append)
    workers.work(range(10), 0.2, per_s=0.001)
    assert done == [0]
    workers.work(range(10), LIMIT_S, per_s=1000)
    assert sorted(done[1:]) == list(range(10))
    pool.shutdown()


def test_of_what_is_spread_over_time_one_does_what_it_can_and_nobody_is_hired_for_nothing() -> None:
    done: list[int] = []
    hired: list[int] = []

    class Counted(AtOnce):
        def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
            before = len(done)
            ended = super().submit(fn, *args, **kwargs)
            hired.append(len(done) - before)
            return ended

    BoundedPool(pool=Counted(1), at_once=16, do=done.append).work(range(300), LIMIT_S, per_s=2000)
    assert done == list(range(300))
    assert min(hired) > 0


def test_of_what_is_spread_over_time_more_are_done_side_by_side_where_each_takes_long() -> None:
    together = threading.Barrier(3, timeout=LIMIT_S)
    pool = ThreadPoolExecutor(3 * MAX_STALLED_FACTOR)

    def work(_number: int) -> None:
        together.wait()

    workers = BoundedPool(pool=pool, at_once=3, do=work)
    workers.work(range(30), LIMIT_S, per_s=500)
    assert workers.errors == []
    pool.shutdown()


def test_a_round_that_need_not_wait_ends_without_who_is_held_up() -> None:
    let_go, done = threading.Event(), list[int]()

    def work(number: int) -> None:
        if number == 0:
            assert let_go.wait(LIMIT_S)
        done.append(number)

    pool = ThreadPoolExecutor(4)
    workers = BoundedPool(pool=pool, at_once=2, do=work)
    workers.work(range(5), LIMIT_S, wait_for_stalled=False)
    assert sorted(done) == [1, 2, 3, 4]
    let_go.set()
    pool.shutdown()
    assert sorted(done) == [0, 1, 2, 3, 4]
