# SPDX-License-Identifier: Apache-2.0
"""docs/reference/isv.md: the score, and each check that did not pass with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.integrations.verdicts import Outcome, Verdict

PAGE: Final = Path(__file__).parents[2] / "docs/reference/isv.md"
LAB_PAGE: Final = PAGE.with_name("isv-lab.md")
_OUTCOMES: Final[tuple[Outcome, ...]] = ("passed", "failed", "not applicable")
_HEAD: Final = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
# Judged by NVIDIA's AI Cloud Validation suite

`{command}` writes this page. `PATH` is a copy of the suite
([NVIDIA/ai-cloud-validation](https://github.com/NVIDIA/ai-cloud-validation), Apache-2.0), which is not part of
vgpuctl; here it was isvctl {version}. Its checks read what the steps of `integrations/isvctl` saw when they did a thing
against {site}. A check fails where vgpuctl lacks the thing or has it in another form. Where nothing was asked,
*not applicable* says why. Presence is often enough for the suite: a check that passes is no proof of all that its
requirement says. [Decision on tests](../decisions/tests.md) says how it is run; [{other}]({other}) has
the score of {others}.

"""

_ABOUT: Final = {
    PAGE: {"command": "make isv SUITE=PATH", "other": LAB_PAGE.name, "others": "a lab host, whose guests boot"},
    LAB_PAGE: {
        "command": "make isv SUITE=PATH LAB_HOST=NAME", "other": PAGE.name,
        "others": "simulated hosts, by all suites",
    },
}  # fmt: skip


def page(place: Path, version: str, site: str, found: Mapping[str, Sequence[Verdict]]) -> str:
    """``place``: where it goes; ``found``: verdicts by suite; ``site``: what was judged, in a few words."""
    rows = [_score(suite, verdicts) for suite, verdicts in found.items()]
    total = _score("all", [verdict for verdicts in found.values() for verdict in verdicts])
    parts = [_HEAD.format(version=version, site=site, **_ABOUT[place]) + _table(("suite", *_OUTCOMES), [*rows, total])]
    for suite, verdicts in found.items():
        wrong = [verdict for verdict in verdicts if verdict.outcome != "passed"]
        if wrong:
            parts.append(f"## {suite}\n\n{_table(('check', 'id', 'outcome', 'why'), [_row(one) for one in wrong])}")
    return "\n".join(parts)


def _score(suite: str, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    counts = [sum(verdict.outcome == outcome for verdict in verdicts) for outcome in _OUTCOMES]
    return (suite, *map(str, counts))


def _row(verdict: Verdict) -> tuple[str, ...]:
    why = " ".join(verdict.why.split()).replace("|", "\\|")
    return (verdict.check.name, verdict.check.test_id, verdict.outcome, why)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
