# SPDX-License-Identifier: Apache-2.0
"""Files that a command is given: endless, silent, huge, or not what they look like."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.catalogue.catalogue import near_names, shipped
from orchestrator.catalogue.driver_lock_file import read_lock
from orchestrator.catalogue.manifest_file import read_manifest
from orchestrator.catalogue.mig_file import read_mig_config
from orchestrator.catalogue.offering_files import site_offerings, validate_offering_file
from orchestrator.client.contexts import ClientContext
from orchestrator.client.tls_http import trust_of
from orchestrator.core.errors import InvalidInput
from orchestrator.simulate_placement.fleet_file import read_groups
from orchestrator.simulate_placement.run import read_requests

PROGRAM = Path(sys.executable).with_name("vgpuctl")
GOOD = """\
schema_version: 1
offerings:
  - name: notebook
    kind: time_sliced
    vgpu_type: NVIDIA L40S-12Q
"""
FLEET = "- count: 1\n  gpu_model: Tesla T4\n  gpus_per_host: 1\n  vcpus: 8\n  memory_gib: 64\n"


def _fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _sparse(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(1 << 40)
    return path


ENDLESS: dict[str, Callable[[Path], Path]] = {
    "a pipe": _fifo,
    "a device without an end": lambda _: Path("/dev/zero"),
    "a terabyte of nothing": _sparse,
    "a directory": lambda path: path.parent,
    "the memory of a process": lambda _: Path("/proc/self/mem"),
    "a name with NUL": lambda path: path / "a\0b",
    "nothing there": lambda path: path / "absent",
}
COMMANDS = (
    "profile validate {file}", "profile add {file}", "apply -f {file}",
    "simulate placement --fleet {file} --requests {good} --out {out}",
    "simulate placement --fleet {good} --requests {file} --out {out}",
    "create-vm a --profile t4-small --user-data {file}", "create-vm a --profile t4-small --ssh-key {file}",
    "host add a --address a.test --provisioning-key {file}", "server restore {file}",
    "image add a {file}", "driver bundle add {file} --signature {good} --key {good}",
    "driver lock apply {file}", "driver bundle add {good} --signature {file} --key {good}",
    "driver bundle add {good} --signature {good} --key {file}", "host import -i {file}", "diff -f {file}",
    "host check --address a.test --provisioning-key {file}",
    "login --issuer https://127.0.0.1:1 --client-id x --no-browser --ca-file {file}",
    "serve --listen 127.0.0.1:0 --tls-cert {file} --tls-key {file}", "serve --simulate {file}",
    "plan -f {file}", "mig plan h -f {file} --config all-1g", "create-vm a --profile t4-small --licence-token {file}",
    "vm provision a guest_licence --secret-file licence_token={file}",
    "backup target create a --s3 https://127.0.0.1:1/bucket --credentials-file {file}",
    "tenant key rotate a --key-file {file}",
    "server make-cert a.test --directory {out} --ca-cert {file} --ca-key {good}",
)  # fmt: skip
ELSEWHERE = {"--save", "--svg", "--state", "--token-file", "--socket-directory", "--identity"}
"""Written, no files, or read when the server is asked; the key of a backup is read once it is one."""


def test_every_option_that_names_a_file_is_tried() -> None:
    page = Path("docs/reference/cli.md").read_text()
    named = re.findall(r"^ +(?:-\w, )?(--[a-z-]+) +(?:NAME=)?(?:FILE|<path>)", page, re.MULTILINE)
    tried = {word for words in COMMANDS for word in words.replace("-f ", "--file ").split()}
    assert set(named) - tried == ELSEWHERE


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_waits_for_a_file_or_reads_without_an_end(tmp_path: Path, words: str) -> None:
    (tmp_path / "good").write_text(FLEET)
    for file in (_fifo(tmp_path / "pipe"), Path("/dev/zero")):
        places = {"good": tmp_path / "good", "out": tmp_path / "out", "file": file}
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "VGPUCTL_STATE": str(tmp_path / "state")}
        done = subprocess.run(
            ["bash", "-c", 'ulimit -v 4000000; exec "$@"', "bash", PROGRAM,
             *(word.format(**places) for word in words.split())],
            env=environment, capture_output=True, timeout=300, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said = done.stderr.decode() + done.stdout.decode()
        assert done.returncode == 2, said
        assert "regular file" in said
        assert "Traceback" not in said
    if (tmp_path / "state" / "serve.sock").exists():  # it asked the server before it read the file
        subprocess.run([PROGRAM, "server", "stop"], env=environment, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("kind", ENDLESS)
def test_no_reader_reads_without_an_end(tmp_path: Path, kind: str) -> None:
    file = ENDLESS[kind](tmp_path / "file")
    assert len(validate_offering_file(file)) == 1
    for read in (lambda: read_groups(file, shipped()), lambda: list(read_requests(file))):
        with pytest.raises(InvalidInput) as caught:
            read()
        assert "\n" not in caught.value.message


@pytest.mark.parametrize("kind", ENDLESS)
def test_no_certificates_are_read_without_an_end(tmp_path: Path, kind: str) -> None:
    file = ENDLESS[kind](tmp_path / "file")
    with pytest.raises(InvalidInput) as caught:
        trust_of(ClientContext(name="x", url="https://127.0.0.1:1", ca_file=str(file)))
    assert caught.value.code == "context.ca_unusable"


TRICKS = {
    "a long integer": ("    version: " + "1" * 5000 + "\n", "is no int that can be read"),
    "a day that is none": ("    description: 2026-13-45\n", "is no timestamp that can be read"),
    "minutes and seconds": ("    gpu_count: 1:30\n", "'1:30' is the number 90 to YAML"),
    "hours": ("    gpu_count: -1:30:00\n", "'-1:30:00' is the number -5400 to YAML"),
    "a part of a minute": ("    gpu_count: 1:30.5\n", "'1:30.5' is the number 90.5 to YAML"),
    "a key of minutes": ("    hosts: {1:30 : a}\n", "'1:30' is the number 90 to YAML"),
    "eights": ("    version: 010\n", "'010' is the number 8 to YAML"),
    "NUL": ("    description: a\0b\n", "U+0000"),
    "NUL by its code": ('    description: "a\\0b"\n', "U+0000"),
    "a bell by its code": ('    description: "a\\ab"\n', "U+0007"),
    "an anchor": ("    description: &a text\n", "anchors"),
    "an alias": ("    description: *a\n", "anchors"),
    "a merge key": ("    <<: {version: 2}\n", "merge keys"),
    "another direction": ("    description: a\u202eb\n", "U+202E"),
    "another direction by its code": ('    description: "a\\u202eb"\n', "U+202E"),
    "another direction in a comment": ("    # a\u2066b\n", "U+2066"),
    "no width": ("    description: a\u200bb\n", "U+200B"),
    "a joiner": ("    description: a\u200db\n", "U+200D"),
    "a mark within": ("    description: a\ufeffb\n", "U+FEFF"),
    "a line that is none": ("    description: a\u2028b\n", "U+2028"),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_in_a_file_is_named_with_its_line(tmp_path: Path, trick: str) -> None:
    text, reason = TRICKS[trick]
    (tmp_path / "file").write_text(GOOD + text)
    (problem,) = validate_offering_file(tmp_path / "file")
    assert (problem.line, reason in problem.reason) == (6, True), problem
    with pytest.raises(InvalidInput) as caught:
        read_manifest(tmp_path / "file", GOOD + text)
    assert ":6: " in caught.value.message


READERS: dict[str, Callable[[Path, str], object]] = {
    "offerings": lambda file, _: site_offerings(file),
    "a file for apply": read_manifest,
    "a fleet": lambda file, _: read_groups(file, shipped()),
    "versions of drivers": read_lock,
    "layouts of GPUs": lambda file, text: read_mig_config(file, text, "all"),
}


@pytest.mark.parametrize("what", READERS)
def test_every_file_of_yaml_refuses_a_number_that_people_read_otherwise(tmp_path: Path, what: str) -> None:
    file = tmp_path / "file"
    file.write_text("a: b\nvcpus: 1:30\n")
    with pytest.raises(InvalidInput) as caught:
        READERS[what](file, file.read_text())
    assert f"{file}:2: '1:30' is the number 90 to YAML" in caught.value.message


@pytest.mark.parametrize("version", ["true", "1.0", "'1'", "1e0", "null", "2"])
def test_a_version_that_only_equals_one_is_none(tmp_path: Path, version: str) -> None:
    text = GOOD.replace("schema_version: 1", f"schema_version: {version}")
    (tmp_path / "file").write_text(text)
    (problem,) = validate_offering_file(tmp_path / "file")
    assert problem.line == 1
    with pytest.raises(InvalidInput):
        read_manifest(tmp_path / "file", text)


def test_twenty_mistakes_are_printed_and_the_others_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("schema_version: 1\nofferings:\n" + "  - {name: A}\n" * 50)
    for words in ("profile validate", "apply -f"):
        done = subprocess.run([PROGRAM, *words.split(), tmp_path / "file"], capture_output=True, text=True, timeout=120,
                              env={"PATH": "/usr/bin:/bin", "VGPUCTL_STATE": str(tmp_path / "state")})  # fmt: skip
        assert done.returncode == 2
        lines = (done.stdout + done.stderr).splitlines()
        assert len(lines) < 25
        assert any("80 more" in line for line in lines), lines


@pytest.mark.parametrize(
    "asked, first",
    [("H100", "H100 "), ("A100", "A100 "), ("T4", "Tesla T4"), ("L4", "L4"), ("rtx pro 6000", "RTX PRO 6000"),
     ("a100 80gb", "A100 "), ("H10O SXM5 80GB", "H100 SXM5 80GB")],
)  # fmt: skip
def test_near_names_are_like_what_was_written(asked: str, first: str) -> None:
    near = near_names(asked, [model.name for model in shipped().gpu_models])
    assert near[0].startswith(first), near
    assert not any(name.startswith("A100X") for name in near) or asked.startswith(("A100", "a100"))
