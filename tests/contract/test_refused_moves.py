# SPDX-License-Identifier: Apache-2.0
"""A running VM that the other host's agent refuses: its own words are told, not that a connection ended."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.agent import move_channel, streams
from orchestrator.agent.libvirt.migration import LIBVIRT, MoveProgress
from orchestrator.agent.live_moves import OtherHost
from orchestrator.core.actions.host_actions import (
    CreateVolume,
    DefineDomain,
    EnsureNetwork,
    FencingToken,
    UndefineDomain,
    WriteSeed,
)
from orchestrator.core.actions.live_move import LiveMove, MovedVm, MoveLoad
from orchestrator.core.errors import Fatal, Retryable, Unknown, VgpuctlError
from tests.contract.agent_over_ssh import SITE, Chain, chain
from tests.unit.agent.bench import domain_of
from tests.unit.agent.test_migration_calls import opened

VM = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10"
TOKEN = FencingToken(site=SITE, epoch=1, operation="op", attempt=1)


@dataclass
class Leaves:
    """Stands for libvirt where the VM leaves: says ``sends`` to the other one, and fails with ``error``."""

    directory: Path
    error: VgpuctlError
    sends: bytes = b""

    def leave(
        self, move: LiveMove, to: OtherHost, progress: Callable[[MoveProgress], bool], gone: Callable[[MovedVm], None]
    ) -> None:
        twin = self.directory / "l"
        with move_channel.leaving(to.own, to.other, to.ends, {LIBVIRT: twin}, twin.parent.stat().st_uid):
            if self.sends:
                with socket.socket(socket.AF_UNIX) as near:
                    near.settimeout(30)
                    near.connect(str(twin))
                    near.sendall(self.sends)
                    assert near.recv(1) == b""
        raise self.error


@dataclass(frozen=True)
class Pair:
    source: Chain
    target: Chain
    link: SshHostLink
    directory: Path

    def refusal(self, leaves: Leaves) -> VgpuctlError:
        object.__setattr__(self.source.agent, "live_moves", leaves)
        with pytest.raises(VgpuctlError) as refused:
            self.link.move_vm(
                self.source.host, TOKEN, self.target.host, TOKEN, LiveMove(vm=VM, devices=()), lambda _done, _left: None
            )
        return refused.value


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """The VM is defined on the second host, whose libvirt listens."""
    monkeypatch.setattr(streams, "own_addresses", lambda: ["127.0.0.1"])
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    run = Path(tempfile.mkdtemp(dir="/tmp"))  # names of sockets are short
    daemon = socket.socket(socket.AF_UNIX)
    daemon.bind(str(run / "libvirt-sock"))
    daemon.listen()
    threading.Thread(target=daemon.accept, daemon=True).start()
    with chain(tmp_path / "one") as one, chain(tmp_path / "two", one.key_file) as two:
        link = SshHostLink(site=SITE, key_file=one.key_file)
        target = dataclasses.replace(two, host=dataclasses.replace(two.host, name="h2"))
        image = tmp_path / "image.raw"
        image.write_bytes(bytes(4096))
        sha256 = hashlib.sha256(image.read_bytes()).hexdigest()
        link.send_image(target.host, image, sha256, "raw", TOKEN)
        for action in (
            EnsureNetwork(name="default", subnet="192.168.122.0/24"),
            CreateVolume(vm=VM, volume=f"{VM}.qcow2", base_sha256=sha256, base_format="raw", size_bytes=2**20),
            WriteSeed(vm=VM, seed=f"{VM}.iso", iso_base64="AAAA"),
            DefineDomain(vm=VM, domain=domain_of(VM)),
        ):
            link.perform(target.host, action, TOKEN)
        moves = dataclasses.replace(two.agent.live_moves, sockets=run / "qemu")
        object.__setattr__(two.agent, "live_moves", moves)
        yield Pair(one, target, link, run)
        link.perform(target.host, UndefineDomain(vm=VM), TOKEN)  # the test driver's domains are the whole process's
        link.close()
    daemon.close()
    shutil.rmtree(run)


BROKE = Unknown("libvirt.answer_lost", "the connection to libvirt broke")


def test_what_the_other_agent_refuses_is_told_with_its_code_its_words_and_its_name(pair: Pair) -> None:
    refused = pair.refusal(Leaves(pair.directory, BROKE, sends=opened("qemu+ext:///system")))
    assert (refused.code, refused.at_host, refused.of_host) == ("move.call_denied", "h2", True)
    assert refused.message.startswith("host h2: the other host's libvirt asked for")
    assert "qemu+ext" in str(refused.details)


def test_what_the_host_that_it_leaves_fails_with_is_told_as_its_own(pair: Pair) -> None:
    for error in (BROKE, Fatal("move.failed", "the VM did not move: the device refuses")):
        refused = pair.refusal(Leaves(pair.directory, error))
        assert (refused.code, refused.at_host) == (error.code, "h1")
        assert refused.message == f"host h1: {error.message}"


def test_a_host_that_cannot_be_reached_is_the_one_that_is_named(pair: Pair) -> None:
    away = dataclasses.replace(pair.source.host, port=1)
    with pytest.raises(Retryable) as refused:
        pair.link.move_vm(away, TOKEN, pair.target.host, TOKEN, LiveMove(vm=VM, devices=()), lambda _done, _left: None)
    assert (refused.value.code, refused.value.at_host) == ("host.unreachable", "h1")


def test_what_a_vm_has_to_move_is_told_by_its_host_as_far_as_its_libvirt_measures(pair: Pair) -> None:
    """The test driver measures no dirty pages, and there is no driver of GPUs."""
    assert pair.link.move_load(pair.target.host, VM) == MoveLoad(memory_bytes=64 * 1024**2)
    with pytest.raises(VgpuctlError) as refused:
        pair.link.move_load(pair.target.host, "6f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10")
    assert refused.value.code == "vm.foreign_domain"
