# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.catalogue.user_data import check_cloud_config
from orchestrator.core.errors import InvalidInput

_DEEP = "#cloud-config\n" + "[" * 5000


@pytest.mark.parametrize(("text", "said"), [
    ("#cloud-config\npackages: [vim\n", "line 3: did not find expected ',' or ']'"),
    ("#cloud-config\n- packages\n", "line 2: no mapping, KEY: VALUE, begins here"),
    ("#cloud-config\npackages\n", "line 2: no mapping, KEY: VALUE, begins here"),
    ("#cloud-config\na: 1\n---\nb: 2\n", "line 4: a second document begins here"),
    (_DEEP, "did not find expected node content"),
])  # fmt: skip
def test_user_data_that_cloud_init_would_leave_out_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_cloud_config(text)
    assert refused.value.code == "user_data.invalid"
    assert said in refused.value.message


@pytest.mark.parametrize("text", [
    "#cloud-config", "#cloud-config\n", "#cloud-config\n---\n", "#cloud-config\na: &x [1]\nb: *x\n", "#!/bin/sh\n- [\n",
    "## template: jinja\n#cloud-config\n{% if a %}\nb: 1\n{% endif %}\n", "#cloud-config\nruncmd: [[ls, /]]\n",
])  # fmt: skip
def test_what_cloud_init_reads_is_taken(text: str) -> None:
    check_cloud_config(text)
