# SPDX-License-Identifier: Apache-2.0
"""Generated from the definitions: faults at every effect and every journal write of every operation.

Afterwards host and database are as before, or as after a run without faults, or what remains is listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

from orchestrator.core.errors import Fatal, Retryable
from orchestrator.core.operation import Operation
from orchestrator.operations.context import Context
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.step import Definition, Step
from tests.fakes.fake_host import Crash, Strike, lost_answer, no_fault
from tests.operations.counts import FAULTS
from tests.operations.scene import NOTHING_TO_TAKE_BACK, SCENES, Scene, Stage, World, stage

T = TypeVar("T")
ON_POSTGRESQL = frozenset({"create l40s", "delete l40s", "add host"})
"""The others run there in make soak."""
SHARES = 3
"""In make test a fault strikes each third moment, and the faults begin at different ones, so that each effect of each
scene is struck in every run. All of them strike everywhere in make soak (docs/decisions/tests.md)."""


def staged_by(scenes: Iterable[Scene]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("staged", [case for scene in scenes for case in _cases(scene)], indirect=True)


def _cases(scene: Scene) -> Iterator[ParameterSet]:
    name = scene.name.replace(" ", "-")
    yield pytest.param(Case(scene, "sqlite", SHARES), id=name)
    if scene.name in ON_POSTGRESQL:
        yield pytest.param(Case(scene, "postgresql", SHARES), id=f"{name}-postgresql")
    for backend in ("sqlite", "postgresql"):
        yield pytest.param(Case(scene, backend, 1), id=f"{name}-{backend}-everywhere", marks=pytest.mark.soak)


@dataclass(frozen=True)
class Case:
    """``shares``: a fault strikes at one moment of so many."""

    scene: Scene
    backend: str
    shares: int


ALL = staged_by(SCENES)
TWO_WAY = staged_by([scene for scene in SCENES if not scene.forward_only])
FORWARD_ONLY = staged_by([scene for scene in SCENES if scene.forward_only])


@pytest.fixture(scope="module")
def staged(request: pytest.FixtureRequest) -> Iterator[Stage]:
    case: Case = request.param
    database = request.getfixturevalue("postgres").database() if case.backend == "postgresql" else None
    with stage(case.scene, database, case.shares) as made:
        yield made
        counted = request.config.stash.setdefault(FAULTS, Counter())
        counted[case.backend] += made.worlds


def struck(made: Stage, moments: Iterable[T], first: int) -> Iterator[tuple[int, T]]:
    """Those of ``moments`` at which a fault strikes here, with their numbers. ``first``: the fault's own."""
    every = list(moments)
    share = max(1, min(made.shares, len(every)))
    return islice(enumerate(every), first % share, None, share)


class Course:
    """A run without faults: what it does and how the world is afterwards."""

    def __init__(self, made: Stage) -> None:
        with made.world() as world:
            self.last: int | None = None
            done = world.run(self._noting(made.scene.kind, world))
            assert done.state == "done", done.error
            self.effects = list(world.plane.hosts.effects)
            self.writes = world.journal.writes
            self.after = world.picture()
            self.before = world.before

    def _noting(self, kind: str, world: World) -> dict[str, Definition]:
        """The definitions; the last effect from which there is a way back is noted."""
        definition = DEFINITIONS[kind]

        def commits(step: Step, context: Context) -> str | None:
            self.last = len(world.plane.hosts.effects) - 1
            return step.do(context)

        steps = (
            replace(step, do=partial(commits, step)) if step == definition.no_return else step
            for step in definition.steps
        )
        noting = replace(definition, steps=tuple(steps))
        return {**{name: other for name, other in DEFINITIONS.items() if name != kind}, kind: noting}


@cache
def course_of(made: Stage) -> Course:
    return Course(made)


def both(*strikes: Strike) -> Strike:
    """The first of them that strikes."""

    def strike(number: int, moment: str, name: str) -> BaseException | None:
        return next((fault for one in strikes if (fault := one(number, moment, name)) is not None), None)

    return strike


def forward(world: World, name: str) -> Strike:
    """The effect of that name is done and then fails, every time but on the way back."""

    def strike(_number: int, moment: str, one: str) -> BaseException | None:
        hit = (moment, one) == ("after", name) and world.operation.state != "undoing"
        return refused(one) if hit else None

    return strike


def always_from(first: int) -> Strike:
    return lambda n, moment, one: refused(one) if n >= first and moment == "before" else None


def at(number: int, moment: str, fault: Callable[[str], BaseException]) -> Strike:
    """One fault, once."""
    return lambda n, m, name: fault(name) if (n, m) == (number, moment) else None


def refused(name: str) -> Fatal:
    return Fatal("test.refused", f"{name} was refused")


def busy(name: str) -> Retryable:
    return Retryable("test.busy", f"{name} is busy")


def crash(_name: str) -> Crash:
    return Crash()


Fault = Callable[[str], BaseException]
FIRST: dict[tuple[Fault, str], int] = {
    (refused, "before"): 0,
    (refused, "after"): 1,
    (lost_answer, "after"): 2,
    (lost_answer, "before"): 0,
    (busy, "before"): 1,
    (crash, "before"): 2,
    (crash, "after"): 0,
}
"""The first effect at which a fault strikes in make test."""


def run_until_it_lives(world: World) -> Operation:
    """The process dies and a new one takes the operation up."""
    for _ in range(5):
        try:
            return world.run()
        except Crash:
            continue
    raise AssertionError("it died every time")


def clean(world: World, where: str) -> None:
    assert world.operation.state == "undone", (where, world.operation)
    assert world.picture() == world.before, where


def way_out(world: World, course: Course, where: str) -> None:
    """Stuck: what remains is listed, everything stays claimed, and a retry brings it to its end."""
    operation = world.operation
    assert operation.state == "stuck", (where, operation)
    assert operation.remainder, where
    assert operation.error is not None, where
    world.plane.services.operations.retry(operation.id)
    assert world.run().state == "done", where
    assert world.picture() == course.after, where


def whole(world: World, course: Course, where: str) -> None:
    """In the step that commits or behind it: as before, as after, or stuck with a way out."""
    if world.operation.state == "undone":
        clean(world, where)
    elif world.operation.state == "done":
        assert world.picture() == course.after, where
    else:
        way_out(world, course, where)


def test_no_effect_is_left_out_of_a_run() -> None:
    both_ways = {first for (fault, _), first in FIRST.items() if fault is not refused}
    for share in range(1, SHARES + 1):
        assert {first % share for first in both_ways} == set(range(share))


@TWO_WAY
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_failure_at_any_effect_is_taken_back_whole(staged: Stage, moment: str) -> None:
    course = course_of(staged)
    for number, name in struck(staged, course.effects, FIRST[refused, moment]):
        with staged.world() as world:
            world.plane.hosts.strike = at(number, moment, refused)
            world.run()
            if staged.scene.kind in NOTHING_TO_TAKE_BACK:
                assert world.operation.state == "undone"
            elif number > last_effect(course):
                whole(world, course, f"{moment} {name}")
            else:
                clean(world, f"{moment} {name}")


@FORWARD_ONLY
def test_a_failure_at_any_effect_of_a_one_way_operation_is_undone_or_lists_what_remains(staged: Stage) -> None:
    course = course_of(staged)
    for number, name in struck(staged, course.effects, FIRST[refused, "before"]):
        with staged.world() as world:
            world.plane.hosts.strike = at(number, "before", refused)
            world.run()
            if world.operation.state == "undone":
                clean(world, f"before {name}")
            else:
                way_out(world, course, f"before {name}")


@pytest.mark.fault("F10")
@ALL
@pytest.mark.parametrize("fault,moment", [(lost_answer, "after"), (lost_answer, "before"), (busy, "before")])
def test_a_lost_answer_or_a_busy_driver_at_any_effect_only_costs_time(
    staged: Stage, fault: Callable[[str], BaseException], moment: str
) -> None:
    course = course_of(staged)
    for number, name in struck(staged, course.effects, FIRST[fault, moment]):
        with staged.world() as world:
            world.plane.hosts.strike = at(number, moment, fault)
            assert world.run().state == "done", (name, world.operation.error)
            assert world.picture() == course.after, f"{moment} {name}"


@pytest.mark.fault("F01", "F02", "F03", "F04", "F05", "F06", "F07")
@ALL
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_effect_it_finishes_when_taken_up_again(staged: Stage, moment: str) -> None:
    course = course_of(staged)
    for number, name in struck(staged, course.effects, FIRST[crash, moment]):
        with staged.world() as world:
            world.plane.hosts.strike = at(number, moment, crash)
            assert run_until_it_lives(world).state == "done", (name, world.operation.error)
            assert world.operation.attempt == 2
            assert world.picture() == course.after, f"{moment} {name}"


@pytest.mark.fault("F01")
@ALL
def test_killed_at_any_journal_write_it_finishes_when_taken_up_again(staged: Stage) -> None:
    course = course_of(staged)
    for number in range(course.writes):
        with staged.world() as world:
            world.journal.strike = at(number, "after" if number % 2 else "before", crash)
            assert run_until_it_lives(world).state == "done", (number, world.operation.error)
            assert world.picture() == course.after, f"write {number}"


def last_effect(course: Course) -> int:
    """From which it is taken back."""
    return len(course.effects) - 1 if course.last is None else course.last


@pytest.mark.fault("F08")
@TWO_WAY
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_moment_of_the_way_back_it_still_ends_as_before(staged: Stage, moment: str) -> None:
    if staged.scene.kind in NOTHING_TO_TAKE_BACK:
        return
    course = course_of(staged)
    last = last_effect(course)
    with staged.world() as world:
        world.plane.hosts.strike = at(last, "after", refused)
        world.run()
        effects, writes = len(world.plane.hosts.effects), world.journal.writes
    for _, number in struck(staged, range(last + 1, effects), FIRST[crash, moment]):
        with staged.world() as world:
            world.plane.hosts.strike = both(at(last, "after", refused), at(number, moment, crash))
            run_until_it_lives(world)
            clean(world, f"{moment} effect {number}")
    for number, _ in struck(staged, range(writes), FIRST[crash, moment]):
        with staged.world() as world:
            world.plane.hosts.strike = forward(world, course.effects[last])
            world.journal.strike = at(number, moment, crash)
            run_until_it_lives(world)
            clean(world, f"{moment} write {number}")


def twice(step: Callable[[Context], object]) -> Callable[[Context], str]:
    def both(context: Context) -> str:
        step(context)
        return str(step(context) or "")

    return both


def undone_twice(undo: Callable[[Context], None] | None) -> Callable[[Context], None] | None:
    def again(context: Context) -> None:
        if undo is not None:
            undo(context)
            undo(context)

    return again if undo else None


def doubled() -> dict[str, Definition]:
    """Every step is done twice and undone twice."""
    return {
        kind: replace(
            definition,
            steps=tuple(replace(step, do=twice(step.do), undo=undone_twice(step.undo)) for step in definition.steps),
        )
        for kind, definition in DEFINITIONS.items()
    }


@ALL
def test_doing_every_step_twice_changes_nothing_more(staged: Stage) -> None:
    course = course_of(staged)
    with staged.world() as world:
        assert world.run(doubled()).state == "done"
        assert world.picture() == course.after


@TWO_WAY
def test_undoing_every_step_twice_changes_nothing_more(staged: Stage) -> None:
    if staged.scene.kind in NOTHING_TO_TAKE_BACK:
        return
    course = course_of(staged)
    with staged.world() as world:
        world.plane.hosts.strike = forward(world, course.effects[last_effect(course)])
        world.run(doubled())
        clean(world, "undo twice")


@pytest.mark.fault("F09")
@TWO_WAY
def test_an_undo_that_fails_once_is_tried_again_and_one_that_always_fails_lists_what_remains(staged: Stage) -> None:
    if staged.scene.kind in NOTHING_TO_TAKE_BACK:
        return
    course = course_of(staged)
    last = last_effect(course)
    with staged.world() as world:
        world.plane.hosts.strike = at(last, "after", refused)
        world.run()
        undo = world.plane.hosts.effects[last + 1 :]
    for offset, name in struck(staged, undo, FIRST[refused, "after"]):
        number = last + 1 + offset
        with staged.world() as world:
            world.plane.hosts.strike = both(at(last, "after", refused), at(number, "before", busy))
            world.run()
            clean(world, f"{name} once")
        with staged.world() as world:
            world.plane.hosts.strike = both(at(last, "after", refused), always_from(number))
            world.run()
            assert world.operation.state == "stuck", (name, world.operation)
            assert world.operation.remainder, name
            assert world.picture() != world.before, name
            world.plane.hosts.strike = no_fault
            world.plane.services.operations.retry(world.operation_id)
            world.run()
            clean(world, f"{name} always, then repaired")
