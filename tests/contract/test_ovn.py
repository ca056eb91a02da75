# SPDX-License-Identifier: Apache-2.0
"""OVN's own servers are asked, over unix sockets and TLS; nothing in them is changed."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Network
from itertools import chain, repeat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from orchestrator.adapters.ovn.databases import OvnDatabases
from orchestrator.adapters.ovn.ovsdb import OvsdbClient
from orchestrator.adapters.state.clock import SystemClock
from orchestrator.adapters.state.ovn_authority import OvnAuthority
from orchestrator.api.schemas.network_driver import NetworkDriverAnswer
from orchestrator.core.errors import InvalidInput, Retryable
from orchestrator.core.ovn import OvnReading, troubles
from orchestrator.server.network_engines import network_engines
from orchestrator.server.settings import load_settings
from orchestrator.services.network_driver import NetworkDriver
from tests.fakes.ovn_databases import RealOvn, real_ovn, request_of, with_certificate

RING = Fernet.generate_key()
AUTHORITY = OvnAuthority(RING, SystemClock())


@pytest.fixture
def ovn(tmp_path: Path) -> Iterator[RealOvn]:
    with real_ovn(tmp_path, AUTHORITY) as made:
        yield made


def _read(ovn: RealOvn, state: Path, **settings: object) -> OvnReading:
    """As a server with these settings does."""
    (state / "secrets").mkdir(exist_ok=True)
    wanted = {"ovn_northbound": ovn.secured("northbound"), "ovn_southbound": ovn.secured("southbound"), **settings}
    overlay = network_engines(load_settings(state=state, **wanted), RING, SystemClock()).overlay
    assert overlay is not None
    return overlay.read()


def test_both_databases_are_read_over_tls_with_certificates_of_ours(ovn: RealOvn, tmp_path: Path) -> None:
    ovn.nbctl("ls-add", "theirs")
    ovn.nbctl("ls-add", "ours", "--", "set", "logical_switch", "ours", "external_ids:vgpuctl-id=0")
    ovn.sbctl("chassis-add", "gpu-1", "geneve", "192.0.2.11")
    before = ovn.nbctl("show"), ovn.sbctl("show")
    reading = _read(ovn, tmp_path)
    assert [(member.error, member.clustered, member.leader) for member in reading.members] == [(None, False, True)] * 2
    assert all((member.certificate_ends_at or 0.0) > time.time() + 800 * 86400 for member in reading.members)
    assert (reading.ours, reading.foreign, reading.northd_behind) == (1, 1, 0)
    assert reading.version is not None
    assert [(chassis.name, chassis.encapsulations) for chassis in reading.chassis] == [
        ("gpu-1", ("geneve 192.0.2.11",))
    ]
    assert (ovn.nbctl("show"), ovn.sbctl("show")) == before
    assert (tmp_path / "secrets/ovn_client.pem").stat().st_mode & 0o777 == 0o600
    hosts = {"gpu-1": "ovn-controller does not answer", "gpu-2": "it has no br-int of Open vSwitch"}
    found = troubles(reading, hosts, IPv4Network("198.51.100.0/24"), time.time())
    assert [(each.code, each.subject) for each in found] == [
        ("ovn.chassis_behind", "gpu-1"), ("ovn.address_outside", "gpu-1"), ("ovn.host_cut_off", "gpu-1"),
        ("ovn.host_missing", "gpu-2"),
    ]  # fmt: skip


def test_a_packet_is_traced_over_tls_with_a_certificate_of_ours(ovn: RealOvn, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    wanted = {"ovn_northbound": ovn.secured("northbound"), "ovn_southbound": ovn.secured("southbound")}
    tracer = network_engines(load_settings(state=tmp_path, **wanted), RING, SystemClock()).tracer
    assert tracer is not None
    ovn.nbctl("ls-add", "s", "--", "lsp-add", "s", "a", "--", "lsp-set-addresses", "a", "52:54:00:00:00:01 10.0.0.2")
    ovn.nbctl("--wait=sb", "--timeout=30", "sync")
    assert 'inport="a")' in tracer.trace("s", 'inport == "a" && eth.src == 52:54:00:00:00:01')
    with pytest.raises(Retryable):
        tracer.trace("nowhere", 'inport == "a"')


def test_an_ovn_of_the_operators_own_is_read_as_it_is(tmp_path: Path) -> None:
    with real_ovn(tmp_path) as ovn:
        ovn.nbctl("lr-add", "theirs")
        wanted = {"ovn_northbound": ovn.socket("northbound"), "ovn_southbound": ovn.socket("southbound")}
        reading = _read(ovn, tmp_path, **wanted)
        assert (reading.ours, reading.foreign) == (0, 1)
        assert troubles(reading, {}, None, time.time()) == ()
        ovn.end("northd")
        ovn.nbctl("--", "set", "nb_global", ".", "nb_cfg=7")
        assert [each.code for each in troubles(_read(ovn, tmp_path, **wanted), {}, None, 0.0)] == ["ovn.northd_behind"]


def test_a_server_that_does_not_answer_is_told_of_beside_those_that_do(ovn: RealOvn, tmp_path: Path) -> None:
    ovn.end("northbound")
    reading = _read(ovn, tmp_path)
    north, south = reading.members
    assert north.error is not None
    assert south.error is None
    assert (reading.foreign, reading.version is not None) == (0, True)
    assert [each.code for each in troubles(reading, {}, None, time.time())] == ["ovn.unreachable"]


def test_a_host_does_not_reach_the_northbound_with_its_certificate(ovn: RealOvn, tmp_path: Path) -> None:
    key, certificate = with_certificate(AUTHORITY, "host", "gpu-1", tmp_path / "host")
    context = ssl.create_default_context(cadata=AUTHORITY.trusted("central"))
    context.check_hostname = False
    context.load_cert_chain(certificate, key)
    wanted = ("Logical_Switch", ("name",)), ("Chassis", ("name",))
    with OvsdbClient(ovn.secured("southbound"), context) as client:
        assert client.select("OVN_Southbound", wanted[1]) == [[]]
    with pytest.raises(Retryable) as refused, OvsdbClient(ovn.secured("northbound"), context) as client:
        client.select("OVN_Northbound", wanted[0])
    assert refused.value.code == "ovn.unreachable"


def test_a_server_with_another_authority_is_not_believed(tmp_path: Path) -> None:
    with real_ovn(tmp_path, OvnAuthority(Fernet.generate_key(), SystemClock())) as ovn:
        assert ["certificate verify failed" in (member.error or "") for member in _read(ovn, tmp_path).members] == [
            True, True,
        ]  # fmt: skip


def test_authorities_are_the_same_each_time_and_of_each_controller() -> None:
    again = OvnAuthority(RING, SystemClock())
    assert again.trusted("central", "host") == AUTHORITY.trusted("central", "host")
    assert AUTHORITY.trusted("central") != AUTHORITY.trusted("host")


@pytest.mark.parametrize("kind", [("rsa:2048",), ("ed25519",)])
def test_a_key_of_another_kind_and_what_is_no_request_are_refused(tmp_path: Path, kind: tuple[str, ...]) -> None:
    for request in (request_of(tmp_path / "key", "gpu-1", kind), "no request", "\ud800"):
        with pytest.raises(InvalidInput) as refused:
            AUTHORITY.sign("host", "gpu-1", request)
        assert refused.value.code == "certificate.request_invalid"


def _answering(path: Path, pieces: Iterable[bytes], pause_s: float = 0.05) -> None:
    """A server that answers whatever is asked with these, one after the other."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection, suppress(BrokenPipeError, ConnectionResetError):
                connection.recv(1 << 16)
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(pause_s)

    threading.Thread(target=serve, daemon=True).start()


@pytest.mark.parametrize("pieces", [
    [b"no json}"], [b"[" * 100_000 + b"}"], [b'{"id": 1, "result": 7, "error": null}'], [b"\xff}"], [b"[1]}"], [],
    [b'{"id": 1, "error": null, "result": [{"rows": [{"name": ["map", 7]}]}]}'],
    [b'{"id": 1, "error": "no", "result": null}'], [b'{"id": 1, "error": null, "result": [{"error": "x"}]}'],
])  # fmt: skip
def test_who_answers_with_something_else_is_told_of(tmp_path: Path, pieces: list[bytes]) -> None:
    _answering(tmp_path / "s", pieces)
    where = [f"unix:{tmp_path / 's'}"]
    reading = OvnDatabases(northbound=where, southbound=where, trust=lambda: None).read()
    assert [member.error is None for member in reading.members] == [False, False]


def test_an_answer_is_whole_however_it_comes(tmp_path: Path) -> None:
    answer = json.dumps({"id": 1, "error": None, "result": [{"rows": [{"name": "a}é"}]}]}, ensure_ascii=False).encode()
    echo = b'{"method": "echo", "params": [], "id": "echo"}'
    cut = answer.index(b"}") + 1
    _answering(tmp_path / "s", [echo + answer[:cut], answer[cut:-4], answer[-4:] + echo])
    with OvsdbClient(f"unix:{tmp_path / 's'}", None) as client:
        assert client.select("any", ("Table", ("name",))) == [[{"name": "a}é"}]]


@pytest.mark.parametrize("piece", [
    b'{"method": "update", "params": [], "id": null}' * 20_000,
    b'{"id": "other", "result": [], "error": null}' * 20_000,
    b'{"a": "' + b"}" * 99_999,
], ids=["notifications", "answers to others", "text without end"])  # fmt: skip
def test_whoever_floods_is_waited_for_no_longer(tmp_path: Path, piece: bytes) -> None:
    _answering(tmp_path / "s", repeat(piece), 0.0)
    began = time.monotonic()
    with (
        OvsdbClient(f"unix:{tmp_path / 's'}", None, 0.2) as client,
        pytest.raises(Retryable, match=r"timed out|more than 32 MiB"),
    ):
        client.select("any", ("Table", ("name",)))
    assert time.monotonic() - began < 1.2


def test_a_long_answer_is_not_parsed_anew_with_each_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse, parsed = json.JSONDecoder.raw_decode, list[int]()

    def counted(decoder: json.JSONDecoder, whole: str) -> tuple[object, int]:
        parsed.append(len(whole))
        return parse(decoder, whole)

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", counted)
    row = b'{"name": "' + b"x" * 40 + b'"}'
    rows = b",".join([row] * 100)
    begin = b'{"id": 1, "error": null, "result": [{"rows": ['
    _answering(tmp_path / "s", chain([begin + rows], repeat(b"," + rows, 799), [b"]}]}"]), 0.001)
    with OvsdbClient(f"unix:{tmp_path / 's'}", None) as client:
        (answer,) = client.select("any", ("Table", ("name",)))
    assert len(answer) == 800 * 100
    assert len(parsed) < 25


def _southbound_saying(
    path: Path, version: object = "24.03", name: object = "gpu-1", behind: object = 0, index: object = 7
) -> NetworkDriverAnswer:
    """As people are answered by a southbound that says so."""
    server = {"name": "OVN_Southbound", "model": "clustered", "connected": True, "leader": True, "index": index}
    options = ["map", [["northd_internal_version", version]]]
    tables: list[dict[str, object]] = [
        {"nb_cfg": 5, "options": options}, {"name": name, "hostname": name, "encaps": ["uuid", "e"],
         "other_config": ["map", [["ovn-bridge-mappings", f"{name}:br-ex"]]]},
        {"name": name, "nb_cfg": behind}, {"_uuid": ["uuid", "e"], "type": "geneve", "ip": name},
    ]  # fmt: skip
    answers = [{"id": 1, "error": None, "result": [{"rows": [server]}]},
               {"id": 2, "error": None, "result": [{"rows": [row]} for row in tables]}]  # fmt: skip
    _answering(path, ["".join(map(json.dumps, answers)).encode()], 0.5)
    reading = OvnDatabases(northbound=[], southbound=[f"unix:{path}"], trust=lambda: None).read()
    found = troubles(reading, {}, None, 0.0)
    return NetworkDriverAnswer.of(
        NetworkDriver(engine="ovn", encapsulation_network=None, reading=reading, troubles=found)
    )


@pytest.mark.parametrize(("said", "version", "chassis"), [
    ({}, "24.03", "gpu-1"), ({"version": 7}, "7", "gpu-1"), ({"version": [1, "\ud800"]}, "?", "gpu-1"),
    ({"version": "\ud800", "name": "\udfff"}, "?", "?"),
])  # fmt: skip
def test_a_southbound_that_lies_is_answered_of(
    tmp_path: Path, said: dict[str, object], version: str, chassis: str
) -> None:
    answer = json.loads(_southbound_saying(tmp_path / "s", **said).model_dump_json())
    assert (answer["version"], answer["members"][0]["error"]) == (version, None)
    assert answer["chassis"] == [
        {"name": chassis, "hostname": chassis, "behind": 5,
         "encapsulations": [f"geneve {chassis}"], "mappings": [chassis], "gateway": False}
    ]  # fmt: skip


@pytest.mark.parametrize(
    "said", [{"behind": 0.5}, {"behind": float("-inf")}, {"behind": -(10**400)}, {"index": 10**400}]
)
def test_numbers_that_no_database_has_are_no_answer(tmp_path: Path, said: dict[str, object]) -> None:
    answer = json.loads(_southbound_saying(tmp_path / "s", **said).model_dump_json())
    assert answer["members"][0]["error"] == "it answered with something else"


def test_what_a_database_says_of_a_refusal_is_told(tmp_path: Path) -> None:
    _answering(tmp_path / "s", [b'{"id": 1, "error": {"error": "permission error"}, "result": null}'])
    reading = OvnDatabases(northbound=[], southbound=[f"unix:{tmp_path / 's'}"], trust=lambda: None).read()
    said = 'OVN\'s database refused what it was asked: {"error": "permission error"}'
    assert [member.error for member in reading.members] == [said]
