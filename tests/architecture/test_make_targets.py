# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import subprocess
from pathlib import Path

MAKEFILE = Path("Makefile")


def _words(*targets: str) -> set[str]:
    """Of the command lines that make would run."""
    done = subprocess.run(["make", "--dry-run", *targets], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def _of_soak(path: Path) -> bool:
    return re.search(r"^pytestmark = .*mark\.soak\b", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def test_every_file_of_tests_on_lab_hosts_is_run_by_make_test_or_test_lab_unless_by_soak() -> None:
    named = _words("test-straight-paths", "test-lab")
    found = [path for place in ("tests/lab", "tests/scenarios") for path in sorted(Path(place).glob("test_*.py"))]
    assert [str(path) for path in found if (str(path) in named) == _of_soak(path)] == []


def test_no_share_has_files_that_enrol_its_host_and_files_that_find_it_enrolled() -> None:
    """The second ones have it enrolled until the last of them ends."""
    shares = re.search(r"^LAB_SHARES [?]= (.+)$", Path("tests/lab/shares.mk").read_text(encoding="utf-8"), re.MULTILINE)
    assert shares is not None
    for share in shares[1].split():
        files = {word: Path(word).read_text(encoding="utf-8") for word in _words(f"test-lab-{share}") if ".py" in word}
        enrolling = {
            name for name, text in files.items() if re.search(r"\b(enrol|enrol_alone|add_host|\w+_on_host)\(", text)
        }
        finding = {name for name, text in files.items() if "(enrolled: Enrolled" in text} - enrolling
        assert not enrolling or not finding, (share, enrolling, finding)


def test_make_check_runs_every_directory_of_quick_tests() -> None:
    shares = re.search(r"^SHARES := (.+)$", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert shares is not None
    named = _words(*shares[1].split())
    quick = {path.parent for path in Path("tests/unit").glob("*/**/test_*.py")} | {Path("tests/architecture")}
    assert [str(path) for path in quick if not {path.as_posix(), *map(Path.as_posix, path.parents)} & named] == []
