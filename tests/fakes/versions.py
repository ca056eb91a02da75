# SPDX-License-Identifier: Apache-2.0
"""Trees of other versions of the program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from orchestrator.store.database import newest_revision

ROOT: Final = Path(__file__).parents[2]
_BESIDE: Final = ("tests", "vgpu_profiles", "playbooks")
LATER_SCHEMA: Final = "9999"
_MIGRATION: Final = f"""\
import sqlalchemy as sa
from alembic import op

revision = "{LATER_SCHEMA}"
down_revision = "{newest_revision()}"


def upgrade() -> None:
    op.create_table("racks", sa.Column("host", sa.String(63), primary_key=True), sa.Column("rack", sa.Text))
    op.add_column("hosts", sa.Column("later", sa.Text))
    op.execute("UPDATE hosts SET later = address")
    op.execute("INSERT INTO racks (host, rack) SELECT name, later FROM hosts")
    op.create_index("ix_racks_rack", "racks", ["rack"])


def downgrade() -> None:
    op.drop_table("racks")
    op.drop_column("hosts", "later")
"""


def copied_tree(tree: Path) -> Path:
    """The program as it is here, of another build: what is changed in it changes nothing here."""
    shutil.copytree(ROOT / "orchestrator", tree / "orchestrator", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _BESIDE:
        (tree / name).symlink_to(ROOT / name)
    return tree


def tree_with_a_later_schema(tree: Path) -> Path:
    """A copy that knows a migration more, up and down: a table, a column, an index and the values in them."""
    copied_tree(tree)
    (migrations_of(tree) / f"versions/{LATER_SCHEMA}_later.py").write_text(_MIGRATION)
    return tree


def migrations_of(tree: Path) -> Path:
    return tree / "orchestrator/store/migrations"


def tree_with_another_agent(tree: Path) -> Path:
    """A copy whose agent is of another build, with nothing that it does otherwise."""
    with (copied_tree(tree) / "orchestrator/agent/version.py").open("a", encoding="utf-8") as file:
        file.write("\n# As it was in the version before.\n")
    return tree


def built_agent(package: Path, tree: Path) -> str:
    """The file that a tree's server puts on hosts; the version that it tells."""
    building = "import sys; from pathlib import Path; from orchestrator.agent.build_zipapp import build_agent\n"
    building += "print(build_agent(Path(sys.argv[1])).version)"
    command = [sys.executable, "-c", building, str(package)]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.strip()
