# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from orchestrator.client.file_lock import LockTimeout, file_lock
from orchestrator.client.location import SERVE_LOCK_NAME, SOCKET_NAME
from tests.fakes.running import running_server
from tests.lab.product import Product


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    found = Product(tmp_path / "state")
    yield found
    found.close()


def _gone(pid: int) -> bool:
    """Zombies count as gone: they belong to a command that has ended or will."""
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "State:\tZ" in status.read_text()


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while not _gone(pid):
        assert time.monotonic() < deadline, f"process {pid} does not end"
        time.sleep(0.1)


def test_the_status_of_a_server_is_told_in_times_that_people_read(product: Product) -> None:
    product.ok("list-vms")
    said = product.ok("server", "status").out
    assert re.search(r"since +[0-9-]{10} [0-9:]{8} UTC \([0-9]+[sm] ago\)\n", said), said
    assert re.search(r"ends when idle for +15m\n", said), said


def test_commands_at_once_start_one_server_and_later_ones_use_it(product: Product) -> None:
    commands = [product.start("list-vms", "-o", "json") for _ in range(4)]
    answers = [command.communicate(timeout=120) for command in commands]
    assert [printed.strip() for printed, _ in answers] == ["[]"] * 4
    assert len([said for _, said in answers if "started a new, empty server" in said]) == 1
    pid = product.serve_pid()
    assert _servers(product.state) == [pid]

    os.kill(pid, signal.SIGKILL)
    _wait_until_gone(pid)
    assert (product.state / SOCKET_NAME).exists()
    assert product.json("list-vms") == []
    assert product.serve_pid() != pid

    assert product.refused(5, "serve").err.startswith("error: a server runs in")
    product.ok("server", "stop")
    assert product.json("server", "status")["running"] is False
    assert not (product.state / SOCKET_NAME).exists()


def test_a_new_and_empty_server_is_said_once_and_a_known_one_never(product: Product) -> None:
    first = product.ok("list-vms")
    assert first.err.startswith(f"started a new, empty server in {product.state};")
    assert product.ok("list-vms").err == ""
    product.ok("server", "stop")
    assert product.ok("list-vms").err == ""


def _servers(state: Path) -> list[int]:
    """Their process ids."""
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if _serves(path, state)]


def _serves(environ: Path, state: Path) -> bool:
    try:
        words = (environ.parent / "cmdline").read_bytes().split(b"\0")
        variables = environ.read_bytes().split(b"\0")
    except OSError:
        return False
    return b"orchestrator.server.serve" in words and f"VGPUCTL_STATE={state}".encode() in variables


def test_a_server_ends_when_nobody_has_needed_it_for_a_while(product: Product) -> None:
    product.environment["VGPUCTL_SERVE_IDLE_SECONDS"] = "1"
    product.ok("list-vms")
    deadline = time.monotonic() + 60
    while _servers(product.state):  # asking it would be needing it
        assert time.monotonic() < deadline, "the server does not end"
        time.sleep(0.1)


def test_a_server_of_another_version_is_replaced(tmp_path: Path) -> None:
    with running_server(tmp_path / "state", "--version", "0.0.9", "--idle-seconds", "900") as state:
        product = Product(state)
        assert product.json("server", "status")["version"] == "0.0.9"
        assert product.json("list-vms") == []
        assert product.json("server", "status")["version"] != "0.0.9"
        product.close()


def test_a_busy_server_of_another_version_is_left_alone(tmp_path: Path) -> None:
    with running_server(tmp_path / "state", "--version", "0.0.9", "--idle-seconds", "900", "--busy") as state:
        product = Product(state)
        assert "server.other_version" in product.refused(5, "list-vms").err
        assert product.json("server", "status")["version"] == "0.0.9"


def test_a_server_of_another_version_that_somebody_started_to_stay_is_left_alone(tmp_path: Path) -> None:
    with running_server(tmp_path / "state", "--version", "0.0.9") as state:
        product = Product(state)
        refused = product.refused(5, "list-vms").err
        assert f"the server in {state} is of version 0.0.9, this is version 0.1.0+" in refused
        assert "[server.other_version]" in refused
        status = product.json("server", "status")
        assert (status["running"], status["version"]) == (True, "0.0.9")
        product.ok("server", "stop")
        assert product.json("list-vms") == []
        product.close()


def test_a_deep_state_directory_works(tmp_path: Path) -> None:
    product = Product(tmp_path / ("d" * 100) / ("e" * 100))
    assert product.json("list-vms") == []
    product.close()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.yaml", "colour: red\n"),
        ("config.yaml", "workers: many\n"),
        ("config.yaml", "a: ["),
        ("config.yaml", "oidc_issuer: https://a.test\noidc_client_id: a\noidc_client_secret_file: /nothing\n"),
    ],
)
def test_a_wrong_setting_is_one_line_and_names_itself(product: Product, name: str, content: str) -> None:
    product.state.mkdir()
    (product.state / name).write_text(content)
    assert "settings.invalid" in product.refused(2, "list-vms").err


def test_a_wrong_idle_time_is_refused(product: Product) -> None:
    product.environment["VGPUCTL_SERVE_IDLE_SECONDS"] = "soon"
    assert "serve.idle_invalid" in product.refused(2, "list-vms").err


def test_a_state_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    product = Product(tmp_path / "file")
    assert "server.state_unusable" in product.refused(9, "list-vms").err
    assert "server.state_unusable" in product.refused(9, "serve").err


def test_a_reader_that_went_away_and_a_closed_output_are_no_disaster(tmp_path: Path) -> None:
    with running_server(tmp_path / "state") as state:
        product = Product(state)
        command = [sys.executable, "-m", "orchestrator.cli.main", "profile", "list", "-o", "json"]
        for shell, expected in (('"$@" | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}', {0, 141}),
                                ('"$@" >&-', {0}), ('"$@" >/dev/full', {9}), ('"$@" </dev/null', {0})):  # fmt: skip
            done = subprocess.run(
                ["bash", "-c", shell, "bash", *command], env=product.environment, capture_output=True, text=True
            )
            assert done.returncode in expected, f"{shell}: {done}"
            assert "Traceback" not in done.stderr


ONE_HOST = "groups: [{name: t4, count: 1, gpu_model: Tesla T4, gpus_per_host: 1, vcpus: 8, memory_gib: 32}]\n"


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.yaml"
    file.write_text(ONE_HOST)
    return file


def test_simulated_hosts_begin_with_an_address_that_logs_in_whoever_sees_the_terminal(
    tmp_path: Path, fleet: Path
) -> None:
    reader, terminal = pty.openpty()
    words = [sys.executable, "-m", "orchestrator.server.serve", f"--simulate={fleet}"]
    environment = {**os.environ, "VGPUCTL_STATE": str(tmp_path / "state")}
    with subprocess.Popen(words, env=environment, stderr=terminal) as server, os.fdopen(reader) as screen:
        try:
            address = next(
                found for line in screen if (found := re.search(r"http://(\S+):(\d+)/web/ticket#(\S+)", line))
            )
            name, port, ticket = address.groups()
            pages = HTTPConnection("127.0.0.1", int(port), timeout=60)
            own = {"Host": f"{name}:{port}", "Sec-Fetch-Site": "same-origin"}
            form = {**own, "Content-Type": "application/x-www-form-urlencoded"}
            pages.request("POST", "/web/ticket", f"ticket={ticket}", form)
            answer = pages.getresponse()
            assert (answer.status, answer.headers["location"]) == (303, "/web/map")
            (curl,) = re.findall(r"metrics: (curl .*?) \(", next(line for line in screen if "metrics" in line))
            told = subprocess.run([*shlex.split(curl), "--silent"], capture_output=True, text=True, check=True)
            assert 'vgpuctl_hosts{state="ready"} 1.0' in told.stdout
        finally:
            server.terminate()


def test_a_command_that_is_typed_while_the_server_starts_waits_for_it_and_starts_none(
    product: Product, fleet: Path
) -> None:
    with product.start("serve", f"--simulate={fleet}") as server:
        try:
            while b"orchestrator.server.serve" not in Path(f"/proc/{server.pid}/cmdline").read_bytes().split(b"\0"):
                assert server.poll() is None
            with pytest.raises(LockTimeout), file_lock(product.state / SERVE_LOCK_NAME, 0):
                pass
            assert [host["name"] for host in product.json("host", "list")] == ["t4-0"]
            assert product.serve_pid() == server.pid
        finally:
            server.terminate()
            server.communicate(timeout=60)


def test_no_log_has_an_address_that_logs_in(tmp_path: Path, fleet: Path) -> None:
    with running_server(tmp_path / "state", "--simulate", str(fleet), module="orchestrator.server.serve") as state:
        time.sleep(1)
        assert "serving on" in (said := (state / "serve.log").read_text())
        assert "ticket" not in said
