"""What a run of Snakemake prints when it fails or is stopped: its own messages without records, and last one line."""

import atexit
import logging
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rmft.errors import AFTER_CTRL_C, InputError, did_you_mean
from rmft.workflow.job_list import note_end

OURS = "rmft: "  # begins the line that rmft writes for a mistake of the user
AGAIN = "run it again to go on"
WITHOUT_A_WORD = "its log is empty, as after a kill from outside (did the machine run out of memory?)"
NOTHING_TO_DO = "Nothing to be done"
JOB_COMMAND = re.compile(r"^(RuleException:\s*)?CalledProcessError in file ")
NO_RULE = re.compile(r"^MissingRuleException:\s+No rule to produce (?P<target>.+?) \(if you use input functions")


class BriefErrors(logging.Filter):
    """Leaves the commands of jobs, with their records, out of Snakemake's errors; suggests a target for a wrong name.

    targets: returns the names that one may ask for.
    """

    def __init__(self, targets: Callable[[], Collection[str]]) -> None:
        super().__init__()
        self.targets = targets

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to print a message of Snakemake's, which is shortened first."""
        if record.levelno < logging.ERROR:
            return True
        for of_job in (record, *getattr(record, "job_error_info", [])):
            if isinstance(of_job, dict):
                of_job["shellcmd"] = None
            elif hasattr(of_job, "shellcmd"):
                of_job.shellcmd = None
        if missing := NO_RULE.match(str(record.msg)):
            record.msg = f"rmft: {no_target(missing['target'], self.targets())}"
        return not JOB_COMMAND.match(str(record.msg))


class WithNothingToDo(logging.Filter):
    """Calls a check when Snakemake says that there is nothing to do, since it leaves out `onstart` then."""

    def __init__(self, check: Callable[[], object]) -> None:
        super().__init__()
        self.check = check

    def filter(self, record: logging.LogRecord) -> bool:
        """Return that the message is to be printed, if the check returns."""
        if str(record.msg).startswith(NOTHING_TO_DO):
            self.check()
        return True


def no_target(name: str, targets: Collection[str]) -> str:
    """Return what to say of a name that Snakemake cannot make: the targets that were probably meant."""
    alike = [target for target in targets if ("/" in target) == ("/" in name)]
    cure = did_you_mean(name, alike, most=3, cutoff=0.5) or "`snakemake --list-target-rules` names all"
    return f"{name}: no such target; {cure}"


def refuse_other_targets(outputs: Iterable[str], artifacts: Collection[str]) -> None:
    """Raise InputError where a run would make what no parameter asks for, such as the files of a further training seed.

    The rules' patterns fit such paths, but nothing would read the file, and `rmft prune` would delete it.
    """
    if other := next((path for path in outputs if path not in artifacts), None):
        raise InputError(no_target(other, artifacts))


def let_sigterm_in(scheduler: Any) -> None:  # noqa: ANN401 (Snakemake's, which has no public type)
    """Have a run end by SIGTERM whenever the signal comes, before its first job.

    Snakemake's handler of the signal takes a lock that the interrupted code may hold, and would wait for itself.
    """
    scheduler._lock = threading.RLock()


def say_last(scheduler: Any, total: int) -> None:  # noqa: ANN401 (Snakemake's, which has no public type)
    """Print why a run ended early when this process ends, so that the line is the last one; note it for `rmft status`.

    total: jobs of the run.
    """
    if line := why_ended(scheduler, total):
        with suppress(InputError):  # it may have failed because nothing can be written
            note_end(line.removeprefix(OURS))
        atexit.register(print, line, file=sys.stderr)


def why_ended(scheduler: Any, total: int) -> str | None:  # noqa: ANN401
    """Return the line on a run that failed or was stopped; None where Snakemake itself failed and has said so."""
    after = f"after {scheduler.finished_jobs} of {total} jobs"
    ended = [job for of in scheduler.failed for job in getattr(of, "jobs", [of])]
    reasons = {Path(log): _reason(Path(log)) for job in ended for log in job.log}
    # Ctrl-C in a terminal reaches jobs too, and one of them may end before Snakemake has noticed the Ctrl-C itself.
    failed = [job for job in ended if AFTER_CTRL_C not in (reasons[Path(log)] for log in job.log)]
    if failed:
        logs = [Path(log) for job in failed for log in job.log]
        log = next((log for log in logs if reasons[log]), next(iter(logs), None))
        reason = reasons.get(log) or WITHOUT_A_WORD
        more = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
        where = f" (log: {log})" if log else ""
        job = next(job for job in failed if log is None or str(log) in map(str, job.log))
        return f"rmft: {job.message or job.rule.name}: failed {after}{more}: {reason}{where}"
    if scheduler._executor_error:
        return None
    by = "by SIGTERM" if scheduler._user_kill else "by Ctrl-C"
    return f"rmft: stopped {by} {after}; {AGAIN}"


def last_line(log: Path) -> str:
    """Return the last line of a job's log; empty where there is none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _reason(log: Path) -> str:
    """Return the last line of a failed job's log, which is the reason if rmft wrote it; empty where there is none."""
    last = last_line(log)
    return last.removeprefix(OURS) if last.startswith(OURS) or not last else f"its last words are {last!r}"


def interrupted_early(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print one line for Ctrl-C while Snakemake still looks for jobs; be `sys.excepthook` otherwise."""
    if issubclass(kind, KeyboardInterrupt):
        print(f"rmft: stopped by Ctrl-C before any job began; {AGAIN}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)
