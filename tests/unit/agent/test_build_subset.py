# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
import types
import zipfile
from pathlib import Path

import pytest

from orchestrator.agent.build_zipapp import build_agent, own_agent, subset, used_attributes

SOURCE = '''# licence
import os
A = 1
B = A + 1
KEEP_X = 3
def unused():
    return B
@staticmethod
def wanted():
    """text"""  # comment
    return Helper().b
class Helper:
    b = B
class Other:
    a = A
print("loaded")
'''


def test_what_the_roots_need_stays_as_it_was_written() -> None:
    assert subset(SOURCE, ["wanted"], kept_prefix="KEEP_") == SOURCE.replace(
        "def unused():\n    return B\n", ""
    ).replace("class Other:\n    a = A\n", "")


def test_without_roots_only_what_acts_or_is_looked_up_by_name_stays() -> None:
    assert subset(SOURCE, [], kept_prefix="KEEP_") == '# licence\nimport os\nKEEP_X = 3\nprint("loaded")\n'


def test_names_are_found_where_they_are_taken_from_the_module() -> None:
    assert used_attributes(["import m\nm.a(m.b.c, other.d)\nm = 1"], "m") == {"a", "b"}


def test_the_version_is_known_without_building(tmp_path: Path) -> None:
    assert own_agent() == build_agent(tmp_path / "agent.pyz").version


def test_the_shipped_binding_has_all_that_the_agent_takes_from_it(tmp_path: Path) -> None:
    build_agent(tmp_path / "agent.pyz")
    source = zipfile.ZipFile(tmp_path / "agent.pyz").read("pynvml.py").decode()
    assert "NVIDIA Corporation" in source.splitlines()[1]
    module = types.ModuleType("pynvml_shipped")
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "pynvml_shipped", module)
        exec(compile(source, "pynvml.py", "exec"), module.__dict__)
        readers = [path.read_text() for path in Path("orchestrator/agent/nvml").glob("*.py")]
        assert all(hasattr(module, name) for name in used_attributes(readers, "pynvml"))
        module.__dict__["nvmlLib"] = object()
        with pytest.raises(module.__dict__["NVMLError"]) as refused:
            module.__dict__["nvmlInit"]()
    assert refused.value.value == module.__dict__["NVML_ERROR_FUNCTION_NOT_FOUND"]
