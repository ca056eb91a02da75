# SPDX-License-Identifier: Apache-2.0
"""Every variable that our playbooks or Ansible's own plugins read, answered as a fact by a guest and by a host.

One run of the real ansible-playbook is told all of them, outside the sandbox, which would hide what they do."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tests.fakes.lying_machine import PLAYBOOKS, provision_guest, take_host
from tests.hostile.families.family import Attack, Family

GUEST_ROLES: Final = (
    "guest_licence",
    "guest_mps",
    "guest_exporter",
    "guest_slurm_node",
    "guest_k8s_node",
    "guest_check",
)
PLUGINS: Final = ("plugins", "playbook", "config", "executor", "vars")
MARK: Final = "trap-of-"


@dataclass(frozen=True)
class Ran:
    """``outcome``: how the run ended, and what was done in it. ``started``: variables whose program was begun."""

    outcome: object
    heard: bytes
    started: frozenset[str]


def _ours() -> set[str]:
    texts = (path.read_text() for path in PLAYBOOKS.rglob("*") if path.suffix in {".yml", ".j2"})
    return {name for text in texts for name in re.findall(r"\bvgpuctl_[a-z0-9_]+\b", text)}


def _ansibles() -> set[str]:
    """What looks like a variable in the source of Ansible's plugins: those that they read are among them."""
    spec = find_spec("ansible")
    assert spec is not None
    assert spec.submodule_search_locations
    source = Path(spec.submodule_search_locations[0])
    files = (path for room in PLUGINS for path in (source / room).rglob("*") if path.suffix in {".py", ".yml"})
    return {name for path in files for name in re.findall(r"\bansible_[a-z0-9_]*[a-z0-9]\b", path.read_text())}


VARIABLES: Final = tuple(sorted(_ours() | _ansibles()))
"""Of the names that Ansible itself takes out of answers some are here, too."""


def _trap(scratch: Path, variable: str) -> str:
    """A file that tells when it is started, and where it is read."""
    path = scratch / f"{MARK}{variable}"
    path.write_text(f"#!/bin/sh\ntouch {scratch}/started-{variable}\n# {MARK}{variable}.\n")
    path.chmod(0o755)
    return str(path)


def _of_guest(scratch: Path, facts: Mapping[str, Any]) -> tuple[object, bytes]:
    run, heard = provision_guest(scratch, GUEST_ROLES, facts, confined=False)
    done = [(one.role, one.state, one.tasks_ok, one.failed_task) for one in run.results]
    return (done, None if run.error is None else (run.error.code, run.error.message)), heard


def _of_host(scratch: Path, facts: Mapping[str, Any]) -> tuple[object, bytes]:
    error, heard = take_host(scratch, facts, confined=False)
    return None if error is None else (error.code, error.message), heard


@cache
def _ran(way: Callable[[Path, Mapping[str, Any]], tuple[object, bytes]], variables: tuple[str, ...]) -> Ran:
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        outcome, heard = way(scratch, {variable: _trap(scratch, variable) for variable in variables})
        begun = frozenset(path.name.removeprefix("started-") for path in scratch.glob("started-*"))
        return Ran(outcome, heard, begun)


def _without_effect(
    way: Callable[[Path, Mapping[str, Any]], tuple[object, bytes]], variable: str, _where: Path
) -> None:
    ran = _ran(way, VARIABLES)
    assert variable not in ran.started
    assert re.search(rf"{MARK}{variable}\b".encode(), ran.heard) is None
    assert ran.outcome == _ran(way, ()).outcome


def _cases(way: Callable[[Path, Mapping[str, Any]], tuple[object, bytes]]) -> dict[str, Attack]:
    return {variable: partial(_without_effect, way, variable) for variable in VARIABLES}


FAMILIES = (
    Family("variables of ours and of Ansible, answered by a guest", "no effect", _cases(_of_guest), in_one_run=True),
    Family("variables of ours and of Ansible, answered by a host", "no effect", _cases(_of_host), in_one_run=True),
)
