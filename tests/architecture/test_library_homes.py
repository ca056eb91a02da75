# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.tree import files, imports, nodes, text

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
    "starlette": ("orchestrator/api/", "orchestrator/web/", "orchestrator/server/serve.py"),
    "jinja2": ("orchestrator/web/rendering.py",),
    "uvicorn": ("orchestrator/server/serve.py", "orchestrator/api/"),
    "typer": ("orchestrator/cli/",),
    "rich": ("orchestrator/cli/",),
    "httpx2": ("orchestrator/adapters/images/", "orchestrator/client/async_http.py", "orchestrator/oidc/"),
    "joserfc": ("orchestrator/oidc/",),
    "authlib": ("orchestrator/oidc/",),
    "prometheus_client": tuple(
        f"orchestrator/api/{name}.py" for name in ("metrics", "pushed_metrics", "reading_metrics")
    ),
    "opentelemetry": ("orchestrator/adapters/otlp/",),
    "requests": ("orchestrator/adapters/otlp/",),
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
             "orchestrator/adapters/images/qemu_check.py", "orchestrator/adapters/ansible/play.py",
             "orchestrator/adapters/ovn/tracing.py",
             "orchestrator/adapters/fencing/agents.py")  # fmt: skip
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


DOCUMENTED = {
    "sqlalchemy",
    "sqlalchemy.exc",
    "sqlalchemy.ext.compiler",
    "sqlalchemy.sql.compiler",
    "sqlalchemy.sql.functions",
    "sqlalchemy.types",
}
"""Modules of SQLAlchemy whose names its documentation has."""
NAMED_TUPLE = {"_asdict", "_make"}


def _private_names(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sqlalchemy":
            names = {alias.name for alias in node.names if alias.name.startswith("_")}
            if node.module not in DOCUMENTED or names:
                yield f"{path}:{node.lineno} {node.module} {sorted(names)}"
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and node.attr not in NAMED_TUPLE:
            owner = ast.unparse(node.value)
            if owner not in {"self", "cls"} and not node.attr.endswith("__"):
                yield f"{path}:{node.lineno} {owner}.{node.attr}"


def test_no_private_name_of_sqlalchemy_is_used() -> None:
    users = [path for path in files(".py", under="orchestrator/") if "sqlalchemy" in text(path)]
    assert [name for path in users for name in _private_names(path)] == []
