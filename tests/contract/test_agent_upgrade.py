# SPDX-License-Identifier: Apache-2.0
"""An agent of a version before, as the file that hosts have, is replaced by this one's while its server goes on.

That VMs keep their processes is seen on a host (tests/lab/test_agent_upgrade.py)."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.core.actions.host_actions import DeleteSeed, FencingToken, WriteSeed
from orchestrator.core.errors import Denied
from tests.contract.agent_over_ssh import SITE, way_to
from tests.fakes.several import until
from tests.fakes.versions import ROOT, built_agent, tree_with_another_agent

VM = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10"
SEED = WriteSeed(vm=VM, seed="a.iso", iso_base64=base64.b64encode(b"seed").decode())


def token(attempt: int, operation: str = "op") -> FencingToken:
    return FencingToken(site=SITE, epoch=1, operation=operation, attempt=attempt)


def answers(path: Path) -> bool:
    """One that ended may have left its socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@contextmanager
def serving(package: Path, directory: Path) -> Iterator[None]:
    """The agent's process, until it is asked to end as systemd does."""
    boot_id = directory / "root/proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True, exist_ok=True)
    boot_id.write_text("boot-1\n")
    config, listens = directory / "config.json", directory / "run/agent.sock"
    config.write_text(json.dumps({"site": SITE, "epoch": 1, "storage": str(directory / "storage")}))
    options = ["--config", str(config), "--socket", str(listens), "--sysroot", str(directory / "root")]
    with subprocess.Popen(
        [sys.executable, "-I", str(package), "serve", *options, "--libvirt", "test:///default"]
    ) as process:
        try:
            until(lambda: answers(listens) or process.poll() is not None, "the agent's start")
            yield
        finally:
            process.terminate()
            assert process.wait(60) == 0


def test_the_newer_agent_has_what_the_older_one_made_and_how_far_each_operation_got(tmp_path: Path) -> None:
    package = tmp_path / "vgpuctl-agent.pyz"
    older = built_agent(package, tree_with_another_agent(tmp_path / "older"))
    seed = tmp_path / "storage/seeds/a.iso"
    with way_to(tmp_path, tmp_path / "run/agent.sock") as way:
        way.ssh.agent = ("-I", str(package))
        link = SshHostLink(site=SITE, key_file=way.key_file)
        with serving(package, tmp_path):
            assert link.observe(way.host).agent_version == older
            assert link.perform(way.host, SEED, token(2)).changed
            made = seed.stat()
            newer = built_agent(package, ROOT)
            assert link.observe(way.host).agent_version == older, "it serves from memory until it is restarted"
            link.forget(way.host)
            assert link.observe(way.host).agent_version == older, "through the newer file's relay, too"
        with serving(package, tmp_path):
            observed = link.observe(way.host)
            assert (observed.agent_version, newer != older) == (newer, True)
            assert [(one.name, one.owner) for one in observed.seeds] == [("a.iso", VM)]
            assert not link.perform(way.host, SEED, token(3)).changed
            assert (seed.stat().st_ino, seed.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
            with pytest.raises(Denied) as refused:
                link.perform(way.host, SEED, token(1))
            assert refused.value.code == "agent.stale_token"
            assert link.perform(way.host, DeleteSeed(vm=VM, seed="a.iso"), token(1, "another")).changed
        link.close()
