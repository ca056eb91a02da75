# SPDX-License-Identifier: Apache-2.0
"""A server is replaced by a newer one, and then its agent on a host, while VMs with vGPUs run there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.running import running_server
from tests.fakes.versions import tree_with_another_agent
from tests.lab.conftest import LabHost
from tests.lab.enrolled import MDEV, Enrolled, add_host
from tests.lab.host_facts import vgpu_count
from tests.lab.product import Product

pytestmark = pytest.mark.lab

KIND = replace(MDEV, smallest=True)
SERVE = "orchestrator.server.serve"


def told_of(one: Enrolled) -> Any:
    return one.product.json("host", "show", one.name)


def of_the_older_version(state: Path, tree: Path, host: LabHost) -> Enrolled:
    """With a VM that runs under its agent."""
    older = Product(state, tree=tree)
    one = Enrolled(product=older, kind=KIND, host=host, gpu=add_host(older, KIND, host), public_key="")
    older.ok(*one.request("kept"))
    assert not told_of(one)["agent_differs"]
    return one


def test_a_host_gets_the_newer_servers_agent_and_its_vms_run_on_in_the_same_processes(
    t4: LabHost, tmp_path: Path
) -> None:
    state, tree = tmp_path / "state", tree_with_another_agent(tmp_path / "older")
    state.mkdir()
    # Of a copied tree the sandbox has the package alone, and Python would look for it where it is installed.
    (state / "config.yaml").write_text("guest_seen_seconds: 0\nansible_sandbox: none\n")
    with running_server(state, module=SERVE, tree=tree):
        first = of_the_older_version(state, tree, t4)
        process, agent = first.running_since("kept"), told_of(first)["software"]["agent"]
    with running_server(state, module=SERVE):
        one = replace(first, product=Product(state))
        assert told_of(one)["agent_differs"]
        assert "ready (other agent)" in one.product.ok("host", "list").out
        one.product.ok(*one.request("beside"))  # the older agent serves as before
        beside = one.running_since("beside")
        one.product.ok("host", "upgrade-agent", one.name)
        now = told_of(one)
        assert (now["agent_differs"], now["software"]["agent"] != agent) == (False, True)
        assert (one.running_since("kept"), one.running_since("beside")) == (process, beside)
        assert one.product.ok("doctor").out.strip() == "nothing differs"
        one.product.ok("stop-vm", "kept", "--force")
        one.product.ok("start-vm", "kept")
        assert vgpu_count(one.shell) == 2
        one.clear()
        one.product.ok("host", "remove", one.name)
