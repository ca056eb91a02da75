# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tools.tree import files, imports

HOMES: dict[str, tuple[str, ...]] = {
    "libvirt": ("orchestrator/agent/libvirt/",),
    "pynvml": ("orchestrator/agent/nvml/",),
    "paramiko": ("orchestrator/adapters/agent_link/",),
    "ansible_runner": ("orchestrator/adapters/ansible/",),
    "ansible": (),
    "sqlalchemy": ("orchestrator/store/", "orchestrator/server/bootstrap.py"),
    "alembic": ("orchestrator/store/",),
    "pysqlite3": ("orchestrator/store/",),
    "pycdlib": ("orchestrator/adapters/seed/",),
    "oslo_utils": ("orchestrator/adapters/images/",),
    "dbos": ("orchestrator/adapters/engine/",),
    "fastapi": ("orchestrator/api/", "orchestrator/server/serve.py"),
    "starlette": ("orchestrator/api/", "orchestrator/server/serve.py"),
    "uvicorn": ("orchestrator/server/serve.py", "orchestrator/api/"),
    "typer": ("orchestrator/cli/",),
    "rich": ("orchestrator/cli/",),
    "httpx2": ("orchestrator/adapters/images/", "orchestrator/client/async_http.py", "orchestrator/oidc/"),
    "joserfc": ("orchestrator/oidc/",),
    "authlib": ("orchestrator/oidc/",),
    "prometheus_client": ("orchestrator/api/metrics.py",),
    "pyrage": ("orchestrator/adapters/state/",),
    "pysequoia": ("orchestrator/adapters/bundles/",),
    "backports": ("orchestrator/adapters/bundles/",),
    "highspy": (),
}


@pytest.mark.parametrize("library", sorted(HOMES))
def test_each_library_is_imported_in_its_home_alone(library: str) -> None:
    strangers = [
        f"{path}:{line}"
        for path in files(".py", under="orchestrator/")
        for line, name in imports(path)
        if name.split(".")[0] == library and not path.as_posix().startswith(HOMES[library])
    ]
    assert strangers == []


def test_processes_are_started_in_few_places() -> None:
    homes = ("orchestrator/agent/", "orchestrator/client/", "orchestrator/cli/", "orchestrator/server/simulated.py",
             "orchestrator/adapters/images/qemu_check.py", "orchestrator/adapters/ansible/play.py")  # fmt: skip
    strangers = [
        f"{path}:{line}"
        for path in files(".py", under="orchestrator/")
        for line, name in imports(path)
        if name == "subprocess" and not path.as_posix().startswith(homes)
    ]
    assert strangers == []


def test_the_product_does_not_import_the_test_bed() -> None:
    strangers = [
        f"{path}:{line}"
        for path in files(".py", under="orchestrator/")
        for line, name in imports(path)
        if name.split(".")[0] in {"lab", "tests"}
    ]
    assert strangers == []
