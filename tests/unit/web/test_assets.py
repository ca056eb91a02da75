# SPDX-License-Identifier: Apache-2.0
"""What is served to browsers: others' files as their manifests say, and nothing from elsewhere."""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path

import pytest

from orchestrator.web.rendering import assets
from tools.tree import ROOT, files, text
from tools.vendor_assets import DIRECTORIES, differing, packages_of

PAGES = ROOT / "orchestrator/web"
OWN = [*sorted((PAGES / "templates").glob("*.html")), *sorted((PAGES / "static").glob("*.*"))]
ELSEWHERE = re.compile(r"(?:https?:)?//[a-z0-9]", re.IGNORECASE)
XML_NAMESPACE = "http://www.w3.org/2000/svg"
INLINE = re.compile(r"\sstyle=|\son[a-z]+=|<style|javascript:|hx-on|hx-vals='js", re.IGNORECASE)


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda directory: directory.parent.name)
def test_vendored_files_are_those_of_the_manifest(directory: Path) -> None:
    assert differing(directory) == []


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    copy = shutil.copytree(DIRECTORIES[0], tmp_path / "vendor")
    (copy / "htmx.min.js").write_text("other")
    (copy / "novnc/core/more.js").write_text("more")
    assert differing(copy) == ["htmx.min.js", "novnc/core/more.js"]


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda directory: directory.parent.name)
def test_each_vendored_package_has_its_licence_beside_it(directory: Path) -> None:
    for package in packages_of(directory):
        assert package["licence"] != ""
        assert package["integrity"].startswith("sha512-")
        assert any(Path(file["name"]).name.startswith("LICENSE") for file in package["files"])


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_page_asks_another_origin_or_has_inline_code(path: Path) -> None:
    content = path.read_text(encoding="utf-8").replace(XML_NAMESPACE, "")
    comments = re.sub(r"^\s*//.*$", "", content, flags=re.MULTILINE)
    assert ELSEWHERE.findall(comments) == []
    assert INLINE.findall(content) == []


@pytest.mark.parametrize("path", [path for path in OWN if path.suffix == ".html"], ids=lambda path: path.name)
def test_what_htmx_acts_on_carries_the_page_s_nonce(path: Path) -> None:
    elements = re.findall(r"<[a-z]+[^>]*\bhx-(?:get|post)=[^>]*>", path.read_text(encoding="utf-8"))
    assert [element for element in elements if 'hx-nonce="{{ nonce }}"' not in element] == []


def test_addresses_of_files_have_their_hash() -> None:
    own = {path.name for path in (PAGES / "static").glob("*.*")}
    alone = {"htmx.min.js", "hx-csp.min.js", "hx-sse.min.js", "uplot.min.js", "uplot.min.css"}
    assert {name for name in assets() if "/" not in name} == own | alone
    assert {name.partition("/")[0] for name in assets() if "/" in name} == {"novnc", "xterm"}
    assert all(re.fullmatch(rf"/web/static/[0-9a-f]{{16}}/{re.escape(name)}", row[2]) for name, row in assets().items())


def test_no_filter_switches_escaping_off() -> None:
    assert [
        str(path) for path in files(".html", under="orchestrator/web/") if "|safe" in text(path).replace(" ", "")
    ] == []


def test_files_of_a_package_find_each_other_and_all_of_them_are_served() -> None:
    """A browser has the addresses of modules from the one that names them."""
    named, known = ["novnc/core/rfb.js"], set[str]()
    while named:
        name = named.pop()
        if name not in known:
            known.add(name)
            imported = re.findall(r"""from\s+["'](\.[^"']+)["']""", assets()[name][0].decode())
            named += [posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) for path in imported]
    assert known == {name for name in assets() if name.startswith("novnc/")}
    assert len({row[2].split("/")[3] for name, row in assets().items() if name in known}) == 1
