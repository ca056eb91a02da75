# SPDX-License-Identifier: Apache-2.0
"""Things are NAME of the tenant that a command is about, or TENANT/NAME; who errs is told whose they are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.running import running_server
from tests.fakes.typed import COMMAND, Cli, cli_of

FLEET = """
groups:
  - {name: t4, count: 1, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 64}
  - {name: a40, count: 1, gpu_model: A40, gpus_per_host: 1, vcpus: 32, memory_gib: 64}
"""
MADE = ("--image", "demo", "--vcpus", "1", "--memory", "1GiB", "--disk", "1GiB")


@pytest.fixture(scope="module")
def two_tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("two")
    (directory / "fleet.yaml").write_text(FLEET)
    simulated = ("--simulate", str(directory / "fleet.yaml"))
    with running_server(directory / "state", *simulated, module="orchestrator.server.serve") as state:
        yield state


@pytest.fixture
def cli(two_tenants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    typed = cli_of(two_tenants, monkeypatch, capsys)
    if typed("tenant", "show", "research").code == 0:
        return typed
    for tenant in ("research", "web"):
        assert typed("tenant", "create", tenant).code == 0
    assert typed("create-vm", "research/r1", "--profile", "t4-1q", *MADE).code == 0
    assert typed("network", "create", "research/inner").code == 0
    assert typed("volume", "create", "research/data", "--size", "1GiB").code == 0
    return typed


READING = (
    "show-vm {vm}", "events {vm}", "vm set {vm} --label a=b", "extend-vm {vm} --until 2099-01-01T00:00Z",
    "stop-vm {vm}", "console {vm} --log", "network show {network}", "volume show {volume}",
    "volume attach {volume} {vm}", "volume detach {volume} {vm}",
)  # fmt: skip
"""Commands about a thing of a tenant."""


def outcome_of(cli: Cli, command: str, prefix: str, *more: str) -> tuple[int, str]:
    words = command.format(vm=f"{prefix}r1", network=f"{prefix}inner", volume=f"{prefix}data").split()
    done = cli(*words, *more)
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    return done.code, "".join(errors).rpartition("[")[2].partition("]")[0]


@pytest.mark.parametrize("command", READING)
def test_a_tenants_thing_is_named_in_one_way_everywhere(cli: Cli, command: str) -> None:
    by_option = outcome_of(cli, command, "", "--tenant", "research")
    assert outcome_of(cli, command, "research/") == by_option
    assert outcome_of(cli, command, "research/", "--tenant", "research") == by_option
    assert not by_option[1].endswith(".unknown")


@pytest.mark.parametrize("command", READING)
def test_two_tenants_in_one_command_are_refused(cli: Cli, command: str) -> None:
    assert outcome_of(cli, command, "research/", "--tenant", "web") == (2, "cli.two_tenants")


@pytest.mark.parametrize("command", READING)
def test_who_names_what_another_tenant_has_is_told_whose_it_is(cli: Cli, command: str) -> None:
    words = command.format(vm="r1", network="inner", volume="data").split()
    refused = cli(*words)
    assert refused.code == 4, refused
    (hint,) = (line for line in refused.err.splitlines() if line.startswith("hint: "))
    name = next(one for one in ("data", "inner", "r1") if f" {one}:" in hint)
    assert hint == f"hint: research has {name}: --tenant research, or research/{name}"


def test_a_name_that_nobody_has_gets_the_hint_that_it_had(cli: Cli) -> None:
    refused = cli("show-vm", "nobody-has-it")
    assert (refused.code, "list-vms" in refused.err or "did you mean" in refused.err) == (4, True)


@pytest.mark.parametrize("wrong", ["research/", "/r1", "a/b/c", "Research/r1", "../r1"])
def test_what_is_no_tenant_and_name_is_refused_before_anything_is_asked(cli: Cli, wrong: str) -> None:
    refused = cli("show-vm", wrong)
    assert (refused.code, "name_invalid]" in refused.err) == (2, True)


def test_several_vms_of_one_tenant_are_named_so_and_of_two_are_refused(cli: Cli) -> None:
    assert cli("start-vm", "research/r1", "research/r1").code == 0
    refused = cli("start-vm", "research/r1", "web/w1")
    assert (refused.code, "[cli.two_tenants]" in refused.err) == (2, True)


def completed(state: Path, typed: str) -> list[str]:
    words = typed.split(" ")
    environment = {
        **os.environ, "VGPUCTL_STATE": str(state), "_VGPUCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1),
    }  # fmt: skip
    done = subprocess.run([COMMAND], env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.split()


def test_the_shell_completes_names_of_ones_own_tenant_and_those_of_others_with_theirs(
    cli: Cli, two_tenants: Path
) -> None:
    assert cli("create-vm", "mine", "--profile", "a40-8q", *MADE).code == 0
    assert completed(two_tenants, "vgpuctl show-vm ") == ["mine", "research/r1"]
    assert completed(two_tenants, "vgpuctl show-vm research/") == ["research/r1"]
    assert completed(two_tenants, "vgpuctl show-vm --tenant research ") == ["r1"]
    assert completed(two_tenants, "vgpuctl volume show ") == ["research/data"]


def test_hosts_and_vms_of_one_gpu_model_are_in_one_group_of_the_inventory(cli: Cli) -> None:
    assert cli("create-vm", "mine", "--profile", "a40-8q", *MADE).code == 0
    inventory = cli("inventory").json()
    hosts = {vm["name"]: vm["host"] for vm in cli("list-vms", "-o", "json").json()}
    assert set(inventory["gpu_model_a40"]["hosts"]) == {hosts["mine"], "mine.default"}
    assert set(inventory["gpu_model_tesla_t4"]["hosts"]) == {hosts["r1"], "r1.research"}
    assert [name for name in inventory if name.startswith("gpu_model_")] == ["gpu_model_a40", "gpu_model_tesla_t4"]
