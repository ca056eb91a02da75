# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import dataclasses
import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncssh
import pytest

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.adapters.agent_link.ssh import scan_host_key
from orchestrator.agent import session, sessions
from orchestrator.core.actions.host_actions import (
    ActionResult,
    CreateVolume,
    DefineDomain,
    DeleteSeed,
    DeleteVolume,
    EnsureNetwork,
    FencingToken,
    HostAction,
    StartDomain,
    StopDomain,
    UndefineDomain,
    WriteSeed,
)
from orchestrator.core.errors import Conflict, Denied, Fatal, InvalidInput, Retryable
from orchestrator.core.hosts.domain import DomainDescription, MadeAs
from orchestrator.core.hosts.host import Host
from orchestrator.core.wire import snapshot_to_dict, things_from_dict
from orchestrator.ports.host import HostLink
from tests.contract.agent_over_ssh import SITE, Chain
from tests.fakes.ports import own_port

VM = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10"
SEED = WriteSeed(vm=VM, seed="a.iso", iso_base64=base64.b64encode(b"seed").decode())


def token(*, epoch: int = 1, attempt: int = 1, operation: str = "op", site: str = SITE) -> FencingToken:
    return FencingToken(site=site, epoch=epoch, operation=operation, attempt=attempt)


def test_a_host_is_observed_and_changed_over_one_channel(way: Chain, link: SshHostLink) -> None:
    port: HostLink = link
    assert port.observe(way.host).boot_id == "boot-1"
    assert port.perform(way.host, SEED, token()) == ActionResult(changed=True)
    assert port.perform(way.host, SEED, token()) == ActionResult(changed=False)
    assert [(s.name, s.owner) for s in port.observe(way.host).seeds] == [("a.iso", VM)]
    assert port.perform(way.host, DeleteSeed(vm=VM, seed="a.iso"), token()).changed
    assert port.observe(way.host).seeds == ()
    assert way.ssh.relays == 1


def test_an_error_of_the_agent_arrives_as_it_was_raised(way: Chain, link: SshHostLink) -> None:
    link.perform(way.host, SEED, token())
    with pytest.raises(Conflict) as refused:
        link.perform(way.host, dataclasses.replace(SEED, vm="other"), token())
    assert refused.value.code == "host.foreign_file"
    with pytest.raises(InvalidInput):
        link.perform(way.host, dataclasses.replace(SEED, seed="../../etc/shadow"), token())
    assert way.ssh.relays == 1


def test_an_older_agent_is_observed_and_given_only_what_it_understands(
    way: Chain, link: SshHostLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = EnsureNetwork(name="default", subnet="192.168.122.0/24")
    monkeypatch.setattr(session, "PROTOCOL_VERSION", 3)
    assert link.observe(way.host).boot_id == "boot-1"
    assert link.perform(way.host, SEED, token()).changed
    with pytest.raises(Fatal) as refused:
        link.perform(way.host, network, token())
    assert refused.value.code == "agent.too_old"
    monkeypatch.undo()
    link.forget(way.host)
    link.perform(way.host, network, token())


@pytest.mark.fault("F96")
def test_an_older_attempt_epoch_or_site_is_refused(way: Chain, link: SshHostLink) -> None:
    link.perform(way.host, SEED, token(attempt=2))
    link.perform(way.host, SEED, token(operation="other"))
    for late, code in (
        (token(attempt=1), "agent.stale_token"),
        (token(epoch=0, attempt=9), "agent.stale_token"),
        (token(site="site-2"), "agent.other_site"),
    ):
        with pytest.raises(Denied) as refused:
            link.perform(way.host, DeleteSeed(vm=VM, seed="a.iso"), late)
        assert refused.value.code == code
    link.perform(way.host, SEED, token(epoch=2, attempt=1))
    with pytest.raises(Denied):
        link.perform(way.host, SEED, token(epoch=1, attempt=9, operation="third"))
    assert len(link.observe(way.host).seeds) == 1


def test_a_controller_of_another_site_gets_no_channel(way: Chain) -> None:
    with pytest.raises(Denied) as refused:
        SshHostLink(site="site-2", key_file=way.key_file).observe(way.host)
    assert refused.value.code == "agent.other_site"


@pytest.mark.fault("F105")
def test_a_changed_host_key_stops_everything(way: Chain, link: SshHostLink) -> None:
    for algorithm in ("ssh-ed25519", "ecdsa-sha2-nistp256"):
        other = asyncssh.generate_private_key(algorithm).export_public_key().decode().split()[:2]
        with pytest.raises(Fatal) as refused:
            link.observe(dataclasses.replace(way.host, host_key=" ".join(other)))
        assert refused.value.code == "host.key_changed"
    assert way.ssh.relays == 0


def test_the_scanned_key_is_the_one_that_ssh_shows(way: Chain) -> None:
    found = scan_host_key("127.0.0.1", way.ssh.port)
    assert f"{found.type} {found.key}" == way.host.host_key
    assert found.fingerprint == way.ssh.host_key.get_fingerprint()


def test_a_key_the_host_does_not_know_is_refused(way: Chain, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    stranger.write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key())
    with pytest.raises(Fatal) as refused:
        SshHostLink(site=SITE, key_file=stranger).observe(way.host)
    assert refused.value.code == "host.auth_failed"


def test_a_host_that_is_not_there_and_an_agent_that_does_not_run_may_be_tried_again(
    way: Chain, link: SshHostLink
) -> None:
    with pytest.raises(Retryable) as refused:
        link.observe(dataclasses.replace(way.host, port=1))
    assert refused.value.code == "host.unreachable"
    way.server.close()
    with pytest.raises(Retryable) as refused:
        link.observe(way.host)
    assert refused.value.code == "agent.not_running"


def test_looking_survives_a_cut_line(way: Chain, link: SshHostLink) -> None:
    link.observe(way.host)
    way.ssh.cut()
    assert link.observe(way.host).boot_id == "boot-1"


def test_many_callers_share_a_host(way: Chain, link: SshHostLink) -> None:
    def write_and_delete(number: int) -> bool:
        mine = dataclasses.replace(SEED, vm=f"vm-{number}", seed=f"{number}.iso")
        written = link.perform(way.host, mine, token(operation=f"op-{number}")).changed
        return (
            written
            and link.perform(way.host, DeleteSeed(vm=mine.vm, seed=mine.seed), token(operation=f"op-{number}")).changed
        )

    with ThreadPoolExecutor(12) as callers:
        assert all(callers.map(write_and_delete, range(24)))
    assert way.ssh.relays <= 5


def _image(directory: Path, size: int = 3 * 1024 * 1024 + 17) -> tuple[Path, str]:
    path = directory / "image.raw"
    path.write_bytes(os.urandom(size))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_image_is_sent_once_and_disks_are_based_on_it(way: Chain, link: SshHostLink, tmp_path: Path) -> None:
    path, sha256 = _image(tmp_path)
    assert link.send_image(way.host, path, sha256, "raw", token()).changed
    assert not link.send_image(way.host, path, sha256, "raw", token()).changed
    assert [i.name for i in link.observe(way.host).images] == [f"{sha256}.raw"]

    volume = CreateVolume(vm=VM, volume="a.qcow2", base_sha256=sha256, base_format="raw", size_bytes=1024**2)
    with pytest.raises(Fatal) as refused:
        link.perform(way.host, volume, token())
    assert refused.value.code == "volume.smaller_than_image"
    assert link.observe(way.host).volumes == ()

    volume = dataclasses.replace(volume, size_bytes=16 * 1024**2)
    assert link.perform(way.host, volume, token()).changed
    assert not link.perform(way.host, volume, token()).changed
    assert link.perform(way.host, DeleteVolume(vm=VM, volume="a.qcow2"), token()).changed
    assert link.observe(way.host).volumes == ()


def test_an_image_with_another_digest_never_becomes_visible(way: Chain, link: SshHostLink, tmp_path: Path) -> None:
    path, _ = _image(tmp_path)
    with pytest.raises(Fatal) as refused:
        link.send_image(way.host, path, "0" * 64, "raw", token())
    assert refused.value.code == "image.digest_differs"
    assert list((way.storage / "images").iterdir()) == []


def test_an_image_that_is_no_qcow2_is_refused(way: Chain, link: SshHostLink, tmp_path: Path) -> None:
    path, sha256 = _image(tmp_path)
    with pytest.raises(Fatal) as refused:
        link.send_image(way.host, path, sha256, "qcow2", token())
    assert refused.value.code == "image.malformed"
    assert list((way.storage / "images").iterdir()) == []


DOMAIN = DomainDescription(
    name="t.a", tenant="t", profile="p", vcpus=1, memory_mib=64, volume="a.qcow2", seed="a.iso", network="default"
)
DEFINE = DefineDomain(vm=VM, domain=DOMAIN)


def furnishings(way: Chain, link: SshHostLink, directory: Path) -> tuple[HostAction, ...]:
    """What makes what a definition takes: a disk on an image that is there, a seed and a network."""
    path, sha256 = _image(directory)
    link.send_image(way.host, path, sha256, "raw", token())
    return (
        EnsureNetwork(name="default", subnet="192.168.122.0/24"),
        CreateVolume(vm=VM, volume="a.qcow2", base_sha256=sha256, base_format="raw", size_bytes=16 * 1024**2),
        SEED,
    )


def _furnish(way: Chain, link: SshHostLink, directory: Path) -> None:
    for action in furnishings(way, link, directory):
        link.perform(way.host, action, token())


def test_a_domain_lives_from_definition_to_removal(way: Chain, link: SshHostLink, tmp_path: Path) -> None:
    host = way.host
    _furnish(way, link, tmp_path)
    assert link.perform(host, DEFINE, token()).changed
    assert not link.perform(host, DEFINE, token()).changed
    assert link.perform(host, StartDomain(vm=VM), token()).changed
    assert not link.perform(host, StartDomain(vm=VM), token()).changed
    assert {d.uuid: (d.name, d.state, d.owner) for d in link.observe(host).domains}[VM] == ("t.a", "running", VM)
    alone, among_all = link.observe_domain(host, VM), next(d for d in link.observe(host).domains if d.uuid == VM)
    sha256 = hashlib.sha256((tmp_path / "image.raw").read_bytes()).hexdigest()
    made_as = MadeAs(domain=DOMAIN, image=f"{sha256}.raw", disk_bytes=16 * 1024**2, boot_policy="local")
    assert alone == dataclasses.replace(among_all, made_as=made_as)
    assert link.things_of(host, VM) == ("domain t.a", "volume a.qcow2", "seed a.iso")
    with pytest.raises(Conflict) as refused:
        link.perform(host, UndefineDomain(vm=VM), token())
    assert refused.value.code == "vm.running"
    assert link.perform(host, StopDomain(vm=VM, grace_seconds=0), token()).changed
    assert not link.perform(host, StopDomain(vm=VM, grace_seconds=0), token()).changed
    assert link.perform(host, UndefineDomain(vm=VM), token()).changed
    assert not link.perform(host, UndefineDomain(vm=VM), token()).changed
    assert VM not in {d.uuid for d in link.observe(host).domains}
    assert link.observe_domain(host, VM) is None
    assert link.things_of(host, VM) == ("volume a.qcow2", "seed a.iso")


def test_an_agent_that_cannot_tell_of_one_vm_alone_is_understood(way: Chain, link: SshHostLink) -> None:
    link.perform(way.host, SEED, token())
    whole = snapshot_to_dict(link.observe(way.host))
    assert things_from_dict(whole, VM) == link.things_of(way.host, VM) == ("seed a.iso",)


def test_a_domain_that_is_not_ours_is_shown_and_left_alone(way: Chain, link: SshHostLink) -> None:
    foreign = next(d for d in link.observe(way.host).domains if d.name == "test")
    assert (foreign.owner, foreign.state) == (None, "running")
    actions: tuple[HostAction, ...] = (
        DefineDomain(vm=foreign.uuid, domain=DOMAIN),
        UndefineDomain(vm=foreign.uuid),
        StartDomain(vm=foreign.uuid),
        StopDomain(vm=foreign.uuid, grace_seconds=0),
    )
    for action in actions:
        with pytest.raises(Conflict) as refused:
            link.perform(way.host, action, token())
        assert refused.value.code == "vm.foreign_domain"


def test_a_definition_that_libvirt_refuses_leaves_nothing(way: Chain, link: SshHostLink, tmp_path: Path) -> None:
    _furnish(way, link, tmp_path)
    link.perform(way.host, DEFINE, token())
    second = dataclasses.replace(DOMAIN, volume="b.qcow2", seed="b.iso")
    other = "6f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b11"
    for name in ("volume:b.qcow2", "seed:b.iso"):
        way.agent.ledger.claim(name, other)
    with pytest.raises(Fatal) as refused:  # the name is taken
        link.perform(way.host, DefineDomain(vm=other, domain=second), token())
    assert refused.value.code == "vm.definition_refused"
    assert way.agent.ledger.owner(f"domain:{other}") is None
    link.perform(way.host, UndefineDomain(vm=VM), token())


def test_events_arrive_until_the_channel_is_cut(way: Chain, link: SshHostLink, tmp_path: Path) -> None:
    _furnish(way, link, tmp_path)
    seen: list[dict[str, object]] = []
    stopped = threading.Event()
    watcher = SshHostLink(site=SITE, key_file=way.key_file)

    def watch() -> None:
        for event in watcher.watch(way.host):
            assert isinstance(event, dict)
            seen.append(event)
            if event["what"] == "stopped":
                stopped.set()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    link.perform(way.host, DEFINE, token())
    while not stopped.is_set():  # the watcher may come late
        link.perform(way.host, StartDomain(vm=VM), token())
        link.perform(way.host, StopDomain(vm=VM, grace_seconds=0), token())
    link.perform(way.host, UndefineDomain(vm=VM), token())
    way.ssh.cut()
    thread.join(30)
    assert not thread.is_alive()
    assert {event["vm"] for event in seen} == {VM}


def test_a_watch_stands_while_both_ends_say_that_they_are_there(way: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "KEEPALIVE_S", 0.6)
    monkeypatch.setattr(session, "_EVENT_POLL_SECONDS", 0.1)
    link = SshHostLink(site=SITE, key_file=way.key_file, controller="a")
    ended = threading.Event()

    def watch() -> None:
        assert list(link.watch(way.host)) == []
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    assert not ended.wait(3 * sessions.KEEPALIVES_MISSED * 0.6)
    assert way.ssh.relays == 1
    monkeypatch.setattr(session, "KEEPALIVE_S", 60.0)  # the agent hangs, as far as its controller can see
    assert ended.wait(30)
    link.close()


def test_streams_to_a_vm_need_a_vm_of_ours(way: Chain, link: SshHostLink) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: link.open_console(way.host, VM),
        lambda: link.open_tcp(way.host, VM, 22),
    )
    for call in calls:
        with pytest.raises(Conflict) as refused:
            call()
        assert refused.value.code == "vm.foreign_domain"


def test_a_tcp_stream_reaches_the_address_that_the_vm_leased(
    way: Chain, link: SshHostLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    monkeypatch.setattr(way.agent.domains, "addresses", lambda vm: ("127.0.0.1",) if vm == VM else ())

    def echo() -> None:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(1000):
                connection.sendall(data.upper())

    threading.Thread(target=echo, daemon=True).start()
    stream = link.open_tcp(way.host, VM, port)
    stream.send(b"hello")
    assert stream.receive(100) == b"HELLO"
    stream.close()
    with pytest.raises(Conflict) as refused:
        link.open_tcp(way.host, "another", port)
    assert refused.value.code == "vm.no_address"
    with pytest.raises(Retryable) as unreachable:
        link.open_tcp(way.host, VM, own_port())
    assert unreachable.value.code == "vm.unreachable"
    listener.close()


@pytest.mark.parametrize("command", ["id", "", "vgpuctl-agent; id"])
def test_the_key_can_do_nothing_but_talk_to_the_agent(way: Chain, command: str) -> None:
    import paramiko

    transport = paramiko.Transport(("127.0.0.1", way.ssh.port))
    transport.start_client()
    transport.auth_publickey("vgpuctl-agent", paramiko.PKey.from_path(way.key_file))
    channel = transport.open_session()
    channel.exec_command(command)
    assert channel.recv_exit_status() == 6
    transport.close()


def test_forgetting_a_host_closes_its_line(way: Chain, link: SshHostLink) -> None:
    def observed(host: Host) -> str:
        return link.observe(host).boot_id

    observed(way.host)
    link.forget(way.host)
    assert observed(way.host) == "boot-1"
    assert way.ssh.relays == 2
