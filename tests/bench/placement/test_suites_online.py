# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tests.bench.placement.suites_online import Job, jobs, perform

SHORT = 0.005
ONE_OF_EACH = {(job.suite, job.policy): job for job in reversed(list(jobs(SHORT)))}


@pytest.mark.parametrize("job", ONE_OF_EACH.values(), ids=lambda job: f"{job.suite}-{job.policy}")
def test_each_policy_of_each_suite_says_what_it_accepted(job: Job) -> None:
    shares = [row.value for row in perform(job) if row.metric == "weighted_acceptance"]
    assert len(shares) == 1
    assert 0 < shares[0] <= 100
