"""How a run that raised an error ends: its state, the error's kind and place, and what to do."""

import contextlib
import sys
import traceback
from typing import Any

from txlbench.config.run import RunConfig
from txlbench.errors import UserError
from txlbench.execution.out_of_memory import explanation, is_out_of_memory
from txlbench.patience import may_pass
from txlbench.records.run_directory import RunDirectory
from txlbench.records.states import RunState


def record_failure(run: RunDirectory, error: BaseException) -> RunState:
    """Writes the traceback to error.txt and the error's kind and place to status.json.

    A disk that is full is no fault of the run: it counts as interrupted and goes on at the next
    call.

    Returns:
        The state of the run, whether or not it could be written.
    """
    described = describe(error)
    if is_out_of_memory(error):
        described["message"] = explanation(error, _config(run), _is_trained(run))
    text = "".join(traceback.format_exception(error)) + described["message"] + "\n"
    state = _state_after(error)
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):
        run.error_file.write_text(text)
    with contextlib.suppress(OSError):
        run.set_state(state, described)
    return state


def describe(error: BaseException) -> dict[str, Any]:
    """Type, message and place of an error: two runs that fail alike have equal places."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
    message = " ".join(str(error).split()) or type(error).__name__
    return {"type": type(error).__name__, "message": message[:500], "where": place}


def _state_after(error: BaseException) -> RunState:
    if type(error).__name__ == "Diverged":  # by name: torch may not even be there
        return RunState.DIVERGED
    return RunState.INTERRUPTED if may_pass(error) else RunState.FAILED


def _config(run: RunDirectory) -> RunConfig | None:
    try:
        return run.read_config()
    except (UserError, OSError, MemoryError):
        return None


def _is_trained(run: RunDirectory) -> bool:
    try:
        return "training" in run.read_summary()
    except (UserError, OSError):
        return False
