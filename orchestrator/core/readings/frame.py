# SPDX-License-Identifier: Apache-2.0
"""One frame: everything that was read on one host at one moment, as the agent sends it and the server believes it.

What is not supported is not in it. What nobody can read (a GPU that was passed through) says why. Numbers of one
subject stand in one array beside a tuple of what they are, which all frames of alike subjects share: a frame of 8
GPUs and 64 vGPUs takes some 40 KB.
"""

from __future__ import annotations

import functools
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard, get_args

from orchestrator.core.errors import Unknown, one_line
from orchestrator.core.readings.flows import MAX_FLOWS, Flow, flow_from_dict, flow_to_dict, left_out_from_dict
from orchestrator.core.readings.quantities import BY_NAME, Quantity, SubjectKind
from orchestrator.core.readings.tunnels import Tunnel, tunnel_to_dict, tunnels_from_list

READINGS_BYTES: Final = 1024 * 1024
"""The largest message with a frame: several times what a host with 16 GPUs, 512 vGPUs and as many VMs sends."""
PERIOD_S: Final = 10.0
"""Between two frames of a host."""
PASSED_THROUGH: Final = "passed through"
"""Why nobody on the host can read a GPU that a VM has whole."""
MAX_SUBJECTS: Final = 2500
MAX_NUMBERS: Final = 300
"""Of one subject."""
MAX_FRAME_NUMBERS: Final = 25_000
"""Of all subjects together: each is kept with its name for minutes. The largest host has some 20,000."""
FACTS: Final = ("driver_version", "guest_driver_version", "vgpu_type", "name", "pci_address", "vbios_version")
"""What is told as text, by the agent's choice of these."""
MAX_FACT: Final = 80
MAX_PROBLEMS: Final = 20
SHARED_KEYS: Final = 200
"""No GPU has more; what a host that lies has more of is its own."""
_MOST: Final = 1e24
"""More than anything that is counted; sums and means of such numbers are numbers, too."""
_KINDS: Final = get_args(SubjectKind)
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9/:.-]{0,79}", re.ASCII)

Key = tuple[str, str]
"""Name of a quantity and its label's value, which is empty where it has no label."""
_JUDGED: Final[dict[tuple[object, ...], tuple[Key, ...]]] = {}
"""By the kind of subject and the names that were sent with it, all of which are known."""
_MAX_JUDGED: Final = 1024
_PLAIN: Final = frozenset({int, float})


@dataclass(frozen=True, slots=True)
class Reading:
    """Of one subject."""

    kind: SubjectKind
    id: str
    """GPU: its UUID. GPU instance: ``GPU-UUID/number``. vGPU: the UUID of its mediated device, or the driver's own of
    it. VM: its domain's UUID, which is the id of a VM of ours."""
    keys: tuple[Key, ...]
    numbers: array[float]
    """As many as keys."""
    gpu: str = ""
    """UUID of the GPU that an instance or a vGPU lies on."""
    vm: str = ""
    """Domain's UUID of who has the vGPU, the instance or the passed-through GPU."""
    facts: Mapping[str, str] = field(default_factory=dict)
    silent: str = ""
    """Why there are no numbers, for people: the GPU is passed through, or hangs."""

    def values(self) -> Iterator[tuple[Quantity, str, float]]:
        """Quantity, label's value, number."""
        for (name, label), number in zip(self.keys, self.numbers, strict=True):
            yield BY_NAME[name], label, number

    def get(self, name: str, label: str = "") -> float | None:
        """None: it was not read."""
        try:
            return self.numbers[self.keys.index((name, label))]
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class HostFrame:
    """``taken_at``: seconds since 1970 by the host's clock, which may be wrong: only differences on one host count."""

    taken_at: float
    readings: tuple[Reading, ...]
    problems: tuple[str, ...] = ()
    """Of the host as a whole, for people: the driver does not answer."""
    flows: tuple[Flow, ...] = ()
    """What OVN logged since the frame before."""
    tunnels: tuple[Tunnel, ...] = ()
    """As they were measured last."""
    flows_left_out: Mapping[str, int] = field(default_factory=dict)
    """By card, how many flows more there were."""


def arranged(numbers: Mapping[Key, float]) -> tuple[tuple[Key, ...], array[float]]:
    """Keys and numbers of a :class:`Reading`. What nobody counts is left out: no number, infinite, too large."""
    counted = {key: number for key, number in numbers.items() if abs(number) <= _MOST}
    keys = tuple(counted)
    return _shared(keys) if len(keys) <= SHARED_KEYS else keys, array("d", counted.values())


def frame_to_dict(frame: HostFrame) -> dict[str, object]:
    """Plain JSON. Defaults are left out."""
    flows = {"flows": [flow_to_dict(flow) for flow in frame.flows]} if frame.flows else {}
    tunnels = {"tunnels": [tunnel_to_dict(tunnel) for tunnel in frame.tunnels]} if frame.tunnels else {}
    return {
        "taken_at": frame.taken_at,
        "problems": list(frame.problems),
        "readings": [_reading_to_dict(subject) for subject in frame.readings],
        **flows,
        **tunnels,
        **({"flows_left_out": dict(frame.flows_left_out)} if frame.flows_left_out else {}),
    }


def frame_from_dict(data: object) -> HostFrame:
    """What an agent sent. Quantities, labels and facts that this program does not know are left out: the agent may be
    newer.

    :raises Unknown: ``agent.answer_invalid``: it is no frame, has too much of something, or one subject twice
    """
    taken_at = data.get("taken_at") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not _is_number(taken_at) or not abs(taken_at) <= _MOST:
        raise _invalid("it has no time")
    listed, problems = data.get("readings"), data.get("problems", [])
    if not isinstance(listed, list) or len(listed) > MAX_SUBJECTS or not isinstance(problems, list):
        raise _invalid(f"it has no list of at most {MAX_SUBJECTS} readings")
    readings = tuple(_reading_from_dict(item) for item in listed)
    if len({(subject.kind, subject.id) for subject in readings}) < len(readings):
        raise _invalid("it has a subject twice")
    if sum(len(subject.keys) for subject in readings) > MAX_FRAME_NUMBERS:
        raise _invalid(f"it has more than {MAX_FRAME_NUMBERS} numbers")
    lines = tuple(one_line(problem) for problem in problems[:MAX_PROBLEMS] if isinstance(problem, str))
    flows = data.get("flows", [])
    if not isinstance(flows, list) or len(flows) > MAX_FLOWS:
        raise _invalid(f"it has no list of at most {MAX_FLOWS} flows")
    tunnels = tunnels_from_list(data.get("tunnels", []))
    left_out = left_out_from_dict(data.get("flows_left_out", {}))
    return HostFrame(float(taken_at), readings, lines, tuple(map(flow_from_dict, flows)), tunnels, left_out)


@functools.lru_cache(maxsize=1024)
def _shared(keys: tuple[Key, ...]) -> tuple[Key, ...]:
    """One tuple for all that are equal: thousands of subjects have the same."""
    return keys


def _reading_to_dict(subject: Reading) -> dict[str, object]:
    numbers: dict[str, object] = {}
    labelled: dict[str, dict[str, float]] = {}
    for (name, label), number in zip(subject.keys, subject.numbers, strict=True):
        if label:
            numbers[name] = labelled.setdefault(name, {})
            labelled[name][label] = number
        else:
            numbers[name] = number
    texts = {"gpu": subject.gpu, "vm": subject.vm, "silent": subject.silent, "facts": dict(subject.facts)}
    filled = {name: value for name, value in texts.items() if value}
    return {"kind": subject.kind, "id": subject.id, "numbers": numbers, **filled}


def _reading_from_dict(item: object) -> Reading:
    if not isinstance(item, dict) or item.get("kind") not in _KINDS:
        raise _invalid("a reading has no kind")
    subject, gpu, vm = (item.get(name, "") for name in ("id", "gpu", "vm"))
    for text in (subject, *(optional for optional in (gpu, vm) if optional != "")):
        if not isinstance(text, str) or _ID.fullmatch(text) is None:
            raise _invalid("a reading has no id")
    silent, facts = item.get("silent", ""), item.get("facts", {})
    if not isinstance(silent, str) or not isinstance(facts, dict):
        raise _invalid("a reading says why it is silent, or its facts, by something that is no text")
    known = {name: one_line(facts[name], MAX_FACT) for name in FACTS if isinstance(facts.get(name), str)}
    numbers = _arranged(item["kind"], item.get("numbers", {}))
    return Reading(item["kind"], subject, *numbers, gpu=gpu, vm=vm, facts=known, silent=one_line(silent))


def _arranged(kind: SubjectKind, numbers: object) -> tuple[tuple[Key, ...], array[float]]:
    """As :func:`arranged`, of what was sent. Thousands of subjects have the same names: each set is judged once.

    :raises Unknown: too many, or what is no number"""
    if not isinstance(numbers, dict) or len(numbers) > MAX_NUMBERS:
        raise _invalid(f"a reading has no numbers, or more than {MAX_NUMBERS}")
    names, flat = list[object]([kind]), list[Any]()
    for name, value in numbers.items():
        if type(value) is dict:
            names.append((name, *value))
            flat += value.values()
        else:
            names.append(name)
            flat.append(value)
    sent = tuple(names)
    keys = _JUDGED.get(sent)
    if keys is not None and _PLAIN.issuperset(map(type, flat)) and _all_counted(flat):
        return keys, array("d", flat)
    own = arranged(dict(_numbers(kind, numbers)))
    if len(own[0]) == len(flat) <= SHARED_KEYS:  # what this program does not know, nobody makes it keep
        if len(_JUDGED) >= _MAX_JUDGED:
            _JUDGED.clear()
        _JUDGED[sent] = own[0]
    return own


def _all_counted(flat: list[int | float]) -> bool:
    """The sum is none where one of them is none; whole ones that no float holds are found before."""
    return -_MOST <= min(flat, default=0) <= max(flat, default=0) <= _MOST and sum(map(abs, flat)) <= _MOST


def _numbers(kind: SubjectKind, numbers: dict[str, Any]) -> Iterator[tuple[Key, float]]:
    """:raises Unknown: too many, or what is no number"""
    for name, value in numbers.items():
        quantity = BY_NAME.get(name)
        labelled = value if isinstance(value, dict) else {"": value}
        if len(labelled) > MAX_NUMBERS or not all(_is_number(number) for number in labelled.values()):
            raise _invalid("a reading has something that is no number")
        if quantity is not None and quantity.subject == kind:
            yield from (
                ((name, label), float(number)) for label, number in labelled.items() if quantity.has_label(label)
            )


def _is_number(value: object) -> TypeGuard[float]:
    """Of whole ones those that may be counted."""
    return type(value) is float or (type(value) is int and abs(value) <= _MOST)


def _invalid(why: str) -> Unknown:
    return Unknown("agent.answer_invalid", "the agent sent readings that are none", details=why)
