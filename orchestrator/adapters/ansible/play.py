# SPDX-License-Identifier: Apache-2.0
"""One run of ansible-playbook through ansible-runner: the only importer of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.adapters.ansible.leftovers import end_all
from orchestrator.adapters.ansible.outcome import Failure, RunReport, TaskEnd
from orchestrator.core.guest import VERSIONS

_RUNNERS_OWN = (
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
_KILLED: Final = frozenset({"canceled", "timeout"})
_RETURNED: Final = frozenset({"readiness", "guest_facts", "reboot", *VERSIONS})
"""Values that modules return for the controller."""
POLL_S: Final = 1
"""How often a silent play is asked whether it should end."""


@dataclass(frozen=True, kw_only=True)
class Play:
    """``playbook`` is run against ``inventory`` with exactly ``environment``; ``scratch`` is thrown away later."""

    playbook: Path
    inventory: dict[str, object]
    environment: dict[str, str]
    scratch: Path
    timeout_s: int


@dataclass
class _EventListener:
    """Follows the events of one run."""

    progress: Callable[[str], None]
    failure: Failure | None = None
    done: tuple[str, ...] = ()
    output: list[str] = field(default_factory=list)
    returned: dict[str, object] = field(default_factory=dict)
    tasks: list[TaskEnd] = field(default_factory=list)

    def __call__(self, event: dict[str, object]) -> bool:
        data = event.get("event_data")
        if isinstance(data, dict):
            self._follow(str(event.get("event")), data)
        if stdout := event.get("stdout"):
            self.output.append(str(stdout))
        return True

    def _follow(self, kind: str, data: dict[str, object]) -> None:
        if kind == "runner_on_start":
            self.progress(str(data.get("task", "")))
        elif kind in {"runner_on_ok", "runner_on_failed"}:
            self._keep(data, failed=kind == "runner_on_failed" and not data.get("ignore_errors"))
        if kind == "runner_on_failed" and not data.get("ignore_errors"):
            self.failure = _failure_in(data, unreachable=False)
        elif kind == "runner_on_unreachable":
            self.failure = _failure_in(data, unreachable=True)
        elif kind == "playbook_on_stats":
            self._finish(data)

    def _keep(self, data: dict[str, object], *, failed: bool) -> None:
        result = data.get("res")
        known = result if isinstance(result, dict) else {}
        self.returned.update({name: known[name] for name in _RETURNED & known.keys()})
        role, task = str(data.get("role", "")), str(data.get("task", ""))
        self.tasks.append(TaskEnd(role=role, task=task, failed=failed, changed=known.get("changed") is True))

    def _finish(self, data: dict[str, object]) -> None:
        """A failure that a rescue block caught leaves the host out of ``failures``."""
        processed, failures, dark = (data.get(name) for name in ("processed", "failures", "dark"))
        bad = {*(failures if isinstance(failures, dict) else ()), *(dark if isinstance(dark, dict) else ())}
        if isinstance(processed, dict):
            self.done = tuple(str(name) for name in processed if name not in bad)
        if not bad:
            self.failure = None


def _failure_in(data: dict[str, object], *, unreachable: bool) -> Failure:
    result = data.get("res")
    said = result if isinstance(result, dict) else {}
    wrote = [said[name] for name in ("module_stderr", "stderr", "module_stdout", "stdout") if said.get(name)]
    return Failure(
        kind="unreachable" if unreachable else "failed",
        task=str(data.get("task", "")),
        message=str(said.get("msg") or "no message"),
        output="\n".join(str(text) for text in wrote),
    )


@contextmanager
def scratch_space(directory: Path, name: str) -> Iterator[tuple[Path, Path]]:
    """Two directories for as long as a run lasts: its own files, and its sockets."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory, prefix=f"{name}-")))
        # A socket's path has at most 107 characters (unix(7)); the state directory may be deep.
        yield scratch, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpuctl-")))


def run_play(play: Play, progress: Callable[[str], None], leaving: Callable[[], bool] = lambda: False) -> RunReport:
    """Run it to its end and report; ``progress`` gets the title of each task as it starts.

    As soon as ``leaving`` says so ansible-playbook and all that it started is killed; the status is then ``canceled``.
    Several plays may run at once in different threads; they share nothing but the machine.
    """
    import ansible_runner

    listener = _EventListener(progress)
    runner = ansible_runner.interface.init_runner(
        private_data_dir=str(play.scratch),
        project_dir=str(play.playbook.parent),
        playbook=play.playbook.name,
        inventory=play.inventory,
        envvars=play.environment,
        settings={
            "job_timeout": play.timeout_s,
            "pexpect_timeout": POLL_S,
            "pexpect_use_poll": True,
            "suppress_ansible_output": True,
        },
        event_handler=listener,
        cancel_callback=leaving,
    )
    given = dict(runner.config.env)
    runner.config.env = {name: given[name] for name in (*play.environment, *_RUNNERS_OWN) if name in given}
    status, return_code = runner.run()
    if status in _KILLED:
        end_all(Path(play.environment["HOME"]))
    return RunReport(
        status=str(status),
        return_code=return_code if isinstance(return_code, int) else None,
        failure=listener.failure,
        hosts_done=listener.done,
        output="\n".join(listener.output),
        returned=listener.returned,
        tasks=tuple(listener.tasks),
    )
