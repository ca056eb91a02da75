# SPDX-License-Identifier: Apache-2.0
"""``python -m orchestrator.adapters.ansible.inside``: one run of ansible-playbook, in its sandbox (sandbox.py).

Reads what to run as JSON from standard input and prints what matters of Ansible's events, a line of JSON each. Whatever
a machine answers is parsed here and nowhere else: this process may be taken over, and is then alone with its run.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any, Final

from orchestrator.core.guest.guest import VERSIONS

_RUNNERS_OWN: Final = (
    "AWX_ISOLATED_DATA_DIR",
    "AD_HOC_COMMAND_ID",
    "ANSIBLE_CALLBACK_PLUGINS",
    "ANSIBLE_LOAD_CALLBACK_PLUGINS",
    "ANSIBLE_STDOUT_CALLBACK",
    "ANSIBLE_RETRY_FILES_ENABLED",
    "ANSIBLE_CACHE_PLUGIN",
    "ANSIBLE_CACHE_PLUGIN_CONNECTION",
    "RUNNER_OMIT_EVENTS",
    "RUNNER_ONLY_FAILED_EVENTS",
)
"""Variables through which ansible-runner and its callback plugin talk to each other."""
_RETURNED: Final = frozenset({"readiness", "guest_facts", "reboot", "request", *VERSIONS})
"""Values that modules return for the controller."""
LIMITS: Final = {
    resource.RLIMIT_AS: 2 * 1024**3,
    resource.RLIMIT_FSIZE: 64 * 1024**2,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_NOFILE: 1024,
}
"""Of each process of a run."""
MAX_RETURNED: Final = 64 * 1024
"""Characters of JSON; a longer value is left out."""
MAX_TEXT: Final = 4000
MAX_OUTPUT: Final = 20_000
"""Characters that Ansible printed, kept of one event."""


class _Events:
    """Prints of each event what :class:`orchestrator.adapters.ansible.outcome.Record` has."""

    def __call__(self, event: dict[str, object]) -> bool:
        """Whether ansible-runner is to keep the event in a file."""
        data = event.get("event_data")
        record = _record(str(event.get("event")), data) if isinstance(data, dict) else {}
        if stdout := event.get("stdout"):
            record["output"] = _cut(str(stdout), MAX_OUTPUT)
        if record:
            tell(record)
        return False


def tell(record: dict[str, object]) -> None:
    """A letter that UTF-8 does not have becomes a question mark."""
    line = json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}\n…\n{text[-most // 2 :]}"


def _record(kind: str, data: dict[str, object]) -> dict[str, object]:
    failed = kind == "runner_on_failed" and not data.get("ignore_errors")
    if kind == "runner_on_start":
        return {"begins": _title(data, "task")}
    if kind in {"runner_on_ok", "runner_on_failed"}:
        return {**_ended(data, failed=failed), **({"failure": _failure(data, "failed")} if failed else {})}
    if kind == "runner_on_unreachable":
        return {"failure": _failure(data, "unreachable")}
    return _stats(data) if kind == "playbook_on_stats" else {}


def _title(data: dict[str, object], name: str) -> str:
    return _cut(str(data.get(name, "")), 300)


def _ended(data: dict[str, object], *, failed: bool) -> dict[str, object]:
    result = data.get("res")
    known = result if isinstance(result, dict) else {}
    returned = {name: known[name] for name in _RETURNED & known.keys() if len(json.dumps(known[name])) <= MAX_RETURNED}
    changed = known.get("changed") is True
    task = {"role": _title(data, "role"), "task": _title(data, "task"), "failed": failed, "changed": changed}
    return {"ended": task, **({"returned": returned} if returned else {})}


def _failure(data: dict[str, object], kind: str) -> dict[str, str]:
    result = data.get("res")
    values = result if isinstance(result, dict) else {}
    wrote = [values[name] for name in ("module_stderr", "stderr", "module_stdout", "stdout") if values.get(name)]
    output = "\n".join(_cut(str(text), MAX_TEXT) for text in wrote)
    message = _cut(str(values.get("msg") or "no message"), MAX_TEXT)
    return {"kind": kind, "task": _title(data, "task"), "message": message, "output": output[-MAX_TEXT:]}


def _stats(data: dict[str, object]) -> dict[str, object]:
    """A failure that a rescue block caught leaves the host out of ``failures``."""
    processed, failures, dark = (data.get(name) for name in ("processed", "failures", "dark"))
    bad = {*(failures if isinstance(failures, dict) else ()), *(dark if isinstance(dark, dict) else ())}
    done = [str(name) for name in processed if name not in bad] if isinstance(processed, dict) else []
    return {"done": done, "good": not bad}


def _bound() -> None:
    for limit, value in LIMITS.items():
        hard = resource.getrlimit(limit)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (least, least))


def run(wanted: dict[str, Any]) -> None:
    """``wanted``: what play.py writes."""
    import ansible_runner

    runner = ansible_runner.interface.init_runner(
        private_data_dir=wanted["scratch"],
        project_dir=wanted["directory"],
        playbook=wanted["playbook"],
        inventory=wanted["inventory"],
        cmdline="--check" if wanted["check"] else None,
        envvars=dict(os.environ),
        settings={"suppress_ansible_output": True, "suppress_output_file": True, "pexpect_use_poll": True},
        event_handler=_Events(),
    )
    given = dict(runner.config.env)
    runner.config.env = {name: given[name] for name in (*os.environ, *_RUNNERS_OWN) if name in given}
    status, return_code = runner.run()
    tell({"status": str(status), "return_code": return_code if isinstance(return_code, int) else None})


def main() -> None:
    """The process's entry point."""
    wanted = json.load(sys.stdin)
    if wanted["bounded"]:
        _bound()
    tell({"begun": True})
    run(wanted)


if __name__ == "__main__":
    main()
