# SPDX-License-Identifier: Apache-2.0
"""What the suite found, check by check, and why a check did not pass."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from xml.etree import ElementTree

CAPABILITY: Final = "vm"
IN_GUEST: Final = "ssh"
"""Label of checks that log in to a guest."""
Outcome = Literal["passed", "failed", "not applicable"]

NOT_APPLICABLE: Final = (
    (r"Nim|GpusPresent|ComputeTopology|SoftwareStack|ContainerRuntime", "a real GPU with its driver in the guest"),
    (r"^Bmc", "out of the field: baseboard management controllers"),
    (r"^Bm[A-Z]", "out of the field: machines without VMs"),
    (r"StorageDirectoryQuota|^Directory", "out of the field: home directories on a file service"),
    (r"^Hss", "out of the field: shared and parallel file systems"),
    (r"[Ss]witch|Ufm|SubnetManager|EastWest|ManagementNetwork", "out of the field: switches and fabrics"),
    (r"TrafficFlow|StableEgress|Dhcp", "packets of a real guest"),
)
"""Why nothing was asked, by the names of checks. Checks that log in to guests have one reason together."""
LOGS_IN: Final = "logs in to the guest by SSH: it takes a real guest with an address that is reached from here"


@dataclass(frozen=True)
class Check:
    """Of a suite's file. ``step``: whose output it judges; None: it asks for itself."""

    name: str
    test_id: str
    step: str | None
    labels: frozenset[str]


@dataclass(frozen=True)
class Verdict:
    """``why`` it did not pass; empty when it did."""

    check: Check
    outcome: Outcome
    why: str = ""


def checks_of(suite: Mapping[str, Any]) -> Iterator[Check]:
    """Those that say something about a site with VMs, in the order of the file."""
    for group in suite["tests"]["validations"].values():
        for name, check in group["checks"].items():
            needs = check.get("requires") or [CAPABILITY, *(["bare_metal"] if name.startswith("Bm") else [])]
            if needs != ["kubernetes"]:
                step = check.get("step") or group.get("step")
                yield Check(name, check["test_id"], step, frozenset(check.get("labels", ())))


def verdicts(suite: Mapping[str, Any], junit: Path, outputs: Path) -> list[Verdict]:
    """``junit``: the report; ``outputs``: where the steps left what they told.

    :raises LookupError: no reason is known for a check that was not judged
    """
    cases = {
        str(case.get("name")): case
        for case in ElementTree.parse(junit).getroot().iter("testcase")
        if "::" not in str(case.get("name"))
    }
    name = junit.stem
    return [_verdict(check, cases.get(check.name), outputs / f"{name}.{check.step}.json") for check in checks_of(suite)]


def _verdict(check: Check, case: ElementTree.Element | None, output: Path) -> Verdict:
    asked = check.step is None or output.exists()
    if case is None or case.find("skipped") is not None or not asked or _unasked(check):
        return Verdict(check, "not applicable", _reason(check, case))
    failures = case.findall("failure")
    if not failures:
        return Verdict(check, "passed")
    told = json.loads(output.read_text()).get("error") if output.exists() else None
    return Verdict(check, "failed", told or _said(failures[-1]))


def _unasked(check: Check) -> bool:
    """It is passed by a suite that asked nothing."""
    return check.name.startswith("StorageDirectoryQuota")


def _reason(check: Check, case: ElementTree.Element | None) -> str:
    known = next((why for pattern, why in NOT_APPLICABLE if re.search(pattern, check.name)), None)
    if known is None and IN_GUEST in check.labels:
        return LOGS_IN
    if known is None:
        skipped = None if case is None else case.find("skipped")
        raise LookupError(f"{check.name}: {'not in the report' if skipped is None else skipped.get('message')}")
    return known


def _said(failure: ElementTree.Element) -> str:
    """By the suite, without where in its code."""
    said = str(failure.get("message")).partition("\nOutput:")[0].partition("Validation failed: ")
    return said[2] or said[0]
