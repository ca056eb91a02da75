# SPDX-License-Identifier: Apache-2.0
"""Boards as Grafana imports them, from ``boards.yaml``. Fields are those of its dashboards' schema, version 39."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

_FILE: Final = Path(__file__).with_name("boards.yaml")
_SCHEMA: Final = 39
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS: Final = 24
_SIZES: Final = {"stat": (4, 4), "timeseries": (12, 8), "table": (12, 8)}
"""By kind of panel: width and height in Grafana's grid."""


def boards() -> Mapping[str, Mapping[str, Any]]:
    """Each by its uid, which is the name of its file."""
    return {board["uid"]: _board(board) for board in yaml.safe_load(_FILE.read_text(encoding="utf-8"))}


def _board(board: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "uid": board["uid"],
        "title": board["title"],
        "tags": ["vgpuctl"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": list(_variables(board.get("variables", {})))},
        "panels": list(_panels(board["panels"], board.get("vms", ""))),
    }


def _variables(queries: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    for name, query in queries.items():
        yield {
            "name": name, "type": "query", "datasource": _SOURCE, "query": {"query": query, "refId": name},
            "refresh": 2, "includeAll": True, "multi": True, "allValue": ".*", "sort": 1,
        }  # fmt: skip


def _panels(panels: list[Mapping[str, Any]], vms: str) -> Iterator[dict[str, Any]]:
    """In rows, from the left."""
    x = y = row = 0
    for number, panel in enumerate(panels, start=1):
        kind = panel.get("kind", "timeseries")
        width, height = _SIZES[kind]
        if x + width > _COLUMNS or (x and height != row):
            x, y = 0, y + row
        yield {
            "id": number, "title": panel["title"], "type": kind, "datasource": _SOURCE,
            "gridPos": {"x": x, "y": y, "w": width, "h": height},
            "fieldConfig": {"defaults": {"unit": panel.get("unit", "none")}, "overrides": []},
            "targets": list(_targets(panel["queries"], vms, at_once=kind != "timeseries", table=kind == "table")),
        }  # fmt: skip
        x, row = x + width, height


def _targets(queries: Mapping[str, str], vms: str, *, at_once: bool, table: bool) -> Iterator[dict[str, Any]]:
    for number, (legend, query) in enumerate(queries.items()):
        yield {
            "refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": query.replace("$vms", vms),
            "legendFormat": legend or "__auto", "instant": at_once, "range": not at_once,
            "format": "table" if table else "time_series",
        }  # fmt: skip
