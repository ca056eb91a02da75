# SPDX-License-Identifier: Apache-2.0
"""Files that lie where a command is typed, in PYTHONPATH or in the user's own site are not run by what we start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.guest_access import ssh_arguments

PROGRAM = Path(sys.executable).with_name("vgpuctl")
NOTE = "import sys\nopen({file!r}, 'a').write(repr(sys.orig_argv) + '\\n')\n"
SHADOWED = ("yaml", "json", "alembic", "uvicorn", "orchestrator", "logging")


def _planted(directory: Path, *names: str) -> Path:
    """Modules that write down who ran them."""
    directory.mkdir(parents=True)
    for name in names:
        (directory / f"{name}.py").write_text(NOTE.format(file=str(directory / "ran")))
    return directory


@pytest.mark.parametrize(
    "words", [("list-vms",), ("serve", "--listen=nowhere"), ("server", "backup", "backup")], ids=str
)
def test_nothing_that_is_spawned_imports_what_lies_about(tmp_path: Path, words: tuple[str, ...]) -> None:
    here = _planted(tmp_path / "here", *SHADOWED)
    path = _planted(tmp_path / "path", "sitecustomize")
    site = _planted(
        tmp_path / f"home/.local/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages",
        "usercustomize",
    )
    state = tmp_path / "state"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(path),
        "VGPUCTL_STATE": str(state),
    }
    try:
        subprocess.run([PROGRAM, *words], cwd=here, env=environment, capture_output=True, timeout=300)
    finally:
        subprocess.run([PROGRAM, "server", "stop"], cwd=tmp_path, env=environment, capture_output=True, timeout=300)
    ran = [line for place in (here, path, site) if (place / "ran").exists() for line in (place / "ran").open()]
    assert [line for line in ran if "'-m'" in line] == []
    assert not (here / "ran").exists()


def test_the_proxy_of_ssh_is_isolated(tmp_path: Path) -> None:
    arguments = ssh_arguments(tmp_path, "0a0f6a80-1111-4222-8333-444455556666", "train", "default", "root")
    proxy = next(word for word in arguments if word.startswith("ProxyCommand="))
    assert proxy.startswith(f"ProxyCommand={sys.executable} -I -m orchestrator.cli.main vm proxy ")
