"""Records how a run failed: its state, the error's type and place, and what to do about it.

A lack of memory is explained by what was asked for and the keys that would lower it.
"""

import contextlib
import re
import sys
import traceback

from txlbench.config.run_config import RunConfig
from txlbench.errors import UserError
from txlbench.files import is_transient
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import Failure, RunState

ASKED = re.compile(
    r"(?:tried to allocate|unable to allocate)\s+([\d.]+)\s*(bytes|[KMGTPE]i?B)", re.IGNORECASE
)
SIGNS = re.compile(
    r"out of memory|not enough memory|can't allocate memory|cannot allocate memory|bad_alloc"
    r"|storage size calculation overflowed|unable to allocate",
    re.IGNORECASE,
)
COMPILE_REMEDY = "install a C++ compiler (g++, or the one that CXX names), or drop train.compile"
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` is a lack of memory, of Python, numpy, or torch on any device."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and SIGNS.search(str(error)) is not None


def asked_for(error: BaseException) -> str | None:
    """The size that could not be had, for people; None if the error does not tell."""
    found = ASKED.search(str(error))
    if found is None:
        return None
    number, unit = float(found[1]), found[2].lower().replace("i", "")
    power = 0 if unit == "bytes" else "kmgtpe".index(unit[0]) + 1
    return readable(number * 1024**power)


def readable(size: float) -> str:
    """A number of bytes with three digits: 3.25 GiB."""
    for unit in UNITS:
        if size < 1024 or unit == UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.3g} {unit}"


def explanation(error: BaseException, config: RunConfig | None, trained: bool) -> str:
    """One line: what was asked for, and what would lower it.

    Args:
        trained: whether the run is trained, and was being measured.
    """
    size = asked_for(error)
    asked = f"{size} were asked for" if size else "how much was asked for is unknown"
    return f"out of memory: {asked}" + (f"; {remedy(config, trained)}" if config else "")


def remedy(config: RunConfig, trained: bool = False) -> str:
    """The keys that lower the memory a run takes, with their values, the gentlest first."""
    train, model, evaluate = config.train, config.model, config.evaluate
    if trained:
        return (
            f"lower evaluate.batch_size ({evaluate.batch_size}) or "
            f"evaluate.attention_lengths ({max(evaluate.attention_lengths, default='none')})"
        )
    size: dict[str, object] = {"model.d_model": model.d_model, "model.n_layer": model.n_layer}
    if model.kind == "hf":
        size = {"model.config": "its sizes"}
    elif not model.is_recurrent:
        size["model.d_inner"] = model.inner_size
    lower: dict[str, object] = {
        "train.batch_size": train.batch_size,
        "train.tgt_len": train.tgt_len,
        **({"train.mem_len": train.memory} if train.memory else {}),
        **size,
    }
    named = ", ".join(f"{key} ({value})" for key, value in lower.items())
    return f"raise train.batch_chunk ({train.batch_chunk}) or lower {named}"


def record_failure(run: RunDirectory, error: BaseException) -> RunState:
    """Writes the traceback to error.txt and the error's kind and place to status.json.

    A disk that is full is no fault of the run: it counts as interrupted and goes on at the next
    call.

    Returns:
        The state of the run, whether or not it could be written.
    """
    failure = describe(error)
    if is_out_of_memory(error):
        message = explanation(error, _config(run), _is_trained(run))
        failure = failure.model_copy(update={"message": message})
    elif type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        what = failure.message.partition(" Set TORCHDYNAMO_VERBOSE")[0]
        failure = failure.model_copy(update={"message": f"{what}; {COMPILE_REMEDY}"})
    text = "".join(traceback.format_exception(error)) + failure.message + "\n"
    state = _state_after(error)
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):
        run.error_file.write_text(text)
    with contextlib.suppress(OSError):
        run.set_state(state, failure)
    return state


def describe(error: BaseException) -> Failure:
    """Type, message and place of an error: two runs that fail alike have equal places."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
    message = " ".join(str(error).split()) or type(error).__name__
    return Failure(type=type(error).__name__, message=message[:500], where=place)


def _state_after(error: BaseException) -> RunState:
    if type(error).__name__ == "Diverged":  # by name: torch may not even be there
        return RunState.DIVERGED
    return RunState.INTERRUPTED if is_transient(error) else RunState.FAILED


def _config(run: RunDirectory) -> RunConfig | None:
    try:
        return run.read_config()
    except (UserError, OSError, MemoryError):
        return None


def _is_trained(run: RunDirectory) -> bool:
    try:
        return run.read_summary().training is not None
    except (UserError, OSError):
        return False
