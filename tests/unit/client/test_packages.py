# SPDX-License-Identifier: Apache-2.0
"""The package alone is the command line and the client: few packages, and it says what a server needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest

from orchestrator.client import program
from orchestrator.client.opening import open_async_client
from orchestrator.core.errors import Fatal
from tests.fakes.running import running_server

ROOT = Path(__file__).parents[3]
_NAME = re.compile(r"[A-Za-z0-9._-]+")
REFUSE = """
import sys
from orchestrator.cli.main import run
allowed = set(sys.argv[1].split(","))
class OnlyThose:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in allowed or top.startswith("_sysconfigdata"):
            return None
        raise ModuleNotFoundError(f"{name} is not among what the package brings", name=name)
    invalidate_caches = lambda self: None
sys.meta_path.insert(0, OnlyThose())
import importlib.util
def find_spec(name):
    return importlib.machinery.PathFinder.find_spec(name) if name in allowed else None
import orchestrator.client.program as program
program.find_spec = find_spec
sys.exit(run(sys.argv[2:]))
"""
MODULES = "orchestrator,typer,rich,yaml,_yaml,pydantic,pydantic_core,websockets,shellingham,markdown_it,mdurl,pygments,"
MODULES += "typing_extensions,annotated_types,typing_inspection,click,annotated_doc"


def _brought() -> set[str]:
    """Every distribution that the package brings without an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found, waiting = set[str](), [_name(text) for text in project["dependencies"]]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += [_name(text) for text in requires(one) or () if "extra ==" not in text and _here(text)]
    return found


def _name(text: str) -> str:
    match = _NAME.match(text)
    assert match is not None
    return match[0].lower()


def _here(text: str) -> bool:
    """Markers of other systems and of older Pythons leave a package out."""
    return "sys_platform ==" not in text and "platform_system ==" not in text and "python_version <" not in text


def test_the_package_alone_brings_at_most_twenty_others() -> None:
    assert len(_brought()) <= 20


def _run(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(state), "VGPUCTL_STATE": str(state)}
    program = [sys.executable, "-c", REFUSE, MODULES, *words]
    return subprocess.run(program, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "words,extra",
    [
        (("list-vms",), "server"),
        (("serve",), "server"),
        (("login", "--issuer", "https://a.example", "--client-id", "x", "--save", "t"), "login"),
    ],
)
def test_what_an_extra_brings_is_asked_for_by_name(tmp_path: Path, words: tuple[str, ...], extra: str) -> None:
    done = _run(tmp_path, *words)
    assert (done.returncode, done.stdout) == (9, "")
    assert "[program.not_installed]" in done.stderr
    assert f"vgpuctl-VERSION.whl[{extra}]" in done.stderr


def test_the_client_for_asyncio_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "find_spec", lambda _: None)
    with pytest.raises(Fatal) as caught:
        open_async_client("https://a.example:8443")
    assert caught.value.code == "program.not_installed"
    assert "vgpuctl-VERSION.whl[async]" in (caught.value.hint or "")


def test_with_those_alone_a_server_is_used(tmp_path: Path) -> None:
    with running_server(tmp_path / "state") as state:
        for words in (("list-vms",), ("host", "show", "gpu1", "-o", "yaml"), ("schema",), ("--help",)):
            done = _run(state, *words)
            assert (done.returncode, done.stderr) == (0, ""), words
