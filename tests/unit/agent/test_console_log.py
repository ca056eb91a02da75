# SPDX-License-Identifier: Apache-2.0
"""What guests print is kept by libvirt's log daemon, told in part, and gone with its VM."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.libvirt.consoles import ConsoleLogs
from orchestrator.agent.libvirt.domain_devices import parts_of
from orchestrator.core.actions.host_actions import DefineDomain, StartDomain, UndefineDomain
from orchestrator.core.domain_xml.console import console_log
from orchestrator.core.domain_xml.domain import domain_xml
from orchestrator.core.errors import Denied
from tests.unit.agent.bench import Bench, domain_of

OTHER = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def bench(furnished: Bench) -> Bench:
    return furnished


def kept(bench: Bench, vm: str) -> Path:
    path = bench.host.paths.root / console_log(vm).removeprefix("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_the_end_is_told_over_the_files_that_the_daemon_has_put_aside(bench: Bench) -> None:
    newest, logs = kept(bench, bench.vm), ConsoleLogs(bench.host.paths)
    assert logs.tail(bench.vm, 100) == b""
    for name, content in (("", b"third\n"), (".0", b"second\n"), (".1", b"first\n")):
        newest.with_name(newest.name + name).write_bytes(content)
    assert logs.tail(bench.vm, 100) == b"first\nsecond\nthird\n"
    assert logs.tail(bench.vm, 9) == b"nd\nthird\n"
    assert logs.tail(bench.vm, 3) == b"rd\n"


def test_a_link_in_the_place_of_a_log_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of the host")
    kept(bench, bench.vm).symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        ConsoleLogs(bench.host.paths).tail(bench.vm, 100)


@pytest.mark.parametrize("vm", ["../../../etc/shadow", "", "x" * 300, OTHER.upper()])
def test_what_is_no_id_of_a_vm_is_no_path(bench: Bench, vm: str) -> None:
    logs = ConsoleLogs(bench.host.paths)
    assert logs.tail(vm, 100) == b""
    logs.remove(vm)


def test_a_vm_keeps_what_it_prints_and_takes_it_along(bench: Bench) -> None:
    xml = domain_xml(bench.vm, domain_of(bench.vm), storage=str(bench.host.paths.storage))
    assert f'<log file="/var/log/libvirt/qemu/vgpuctl-{bench.vm}.console" append="on" />' in xml
    assert parts_of(xml).others == ()
    bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)))
    assert parts_of(bench.domains_there()[bench.vm]).others == ()
    path, others = kept(bench, bench.vm), kept(bench, OTHER)
    for file in (path, path.with_name(f"{path.name}.0"), others):
        file.write_bytes(b"printed\n")
    bench.do(UndefineDomain(vm=bench.vm))
    assert list(path.parent.iterdir()) == [others]


def test_a_definition_that_logs_elsewhere_does_not_start(bench: Bench) -> None:
    bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)))
    bench.libvirt.defineXML(bench.domains_there()[bench.vm].replace(console_log(bench.vm), console_log(OTHER)))
    with pytest.raises(Denied) as refused:
        bench.do(StartDomain(vm=bench.vm))
    assert refused.value.code == "vm.definition_foreign"
    assert "with a log of its own" in refused.value.message
