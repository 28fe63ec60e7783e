"""A run that has too little memory says how much was asked for, and what would lower it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.runs.trial import plan_of, prepared_job, write_spec
from txlbench.config.run_config import RunConfig
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs.failure import (
    asked_for,
    explanation,
    is_out_of_memory,
    readable,
    record_failure,
    remedy,
)

ROOT = Path(__file__).parents[2]
EVER = 2**50
"""Bytes beyond any address space."""


def raised(call):
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("call", "size"),
    [
        (lambda: torch.empty(EVER, dtype=torch.uint8), "1 PiB"),
        (lambda: np.empty(EVER, np.uint8), "1 PiB"),
        (lambda: bytearray(EVER), None),
        (lambda: torch.empty(2**40, 2**40), None),
    ],
    ids=["torch", "numpy", "python", "beyond counting"],
)
def test_real_lacks_of_memory_are_known_with_their_size(call, size):
    error = raised(call)
    assert is_out_of_memory(error)
    assert asked_for(error) == size


def test_a_devices_lack_of_memory_is_known_with_its_size():
    """The words of the CUDA allocator, which cannot be had without one."""
    error = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 4.00 GiB"
    )
    assert is_out_of_memory(error)
    assert asked_for(error) == "2.5 GiB"


@pytest.mark.parametrize("error", [ValueError("out of memory"), RuntimeError("shape mismatch")])
def test_other_errors_are_not(error):
    assert not is_out_of_memory(error)


@pytest.mark.parametrize(
    ("size", "shown"),
    [(7, "7 bytes"), (1024, "1 KiB"), (3.25 * 2**30, "3.25 GiB"), (500 * 2**20, "500 MiB")],
)
def test_sizes_are_for_people(size, shown):
    assert readable(size) == shown


def config(**sections):
    return RunConfig.model_validate({"corpus": "enwiki-sample", **sections})


def test_the_keys_that_lower_it_are_named_with_their_values():
    found = remedy(config(train={"batch_size": 8, "batch_chunk": 2, "mem_len": 33}))
    for part in ("train.batch_chunk (2)", "train.batch_size (8)", "train.mem_len (33)"):
        assert part in found
    assert "model.d_model (128)" in found
    assert "mem_len" not in remedy(config(train={"mem_len": 0}))
    measured = {"batch_size": 7, "attention_lengths": [4, 9]}
    assert remedy(config(evaluate=measured), trained=True) == (
        "lower evaluate.batch_size (7) or evaluate.attention_lengths (9)"
    )


def test_what_is_not_known_is_said():
    assert explanation(MemoryError(), None, False) == (
        "out of memory: how much was asked for is unknown"
    )


LIMITED = """
import resource, sys
import torch, numpy
import txlbench.runs.train_run
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 400 * 2**20, resource.RLIM_INFINITY))
from txlbench.runs.worker import main
sys.exit(main())
"""


@pytest.mark.full
@pytest.mark.alone
def test_a_run_that_does_not_fit_into_memory_fails_and_says_what_to_do():
    """A process with 400 MB left, and a step whose inner states alone take 1.4 GB."""
    write_spec({"train.batch_size": 64, "train.tgt_len": 33, "model.d_inner": 200_000})
    (run,) = plan_of()
    job = prepared_job(run)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    worker = subprocess.Popen(
        [sys.executable, "-c", LIMITED], stdin=subprocess.PIPE, text=True, env=env
    )
    try:
        worker.stdin.write(job.to_json() + "\n")
        worker.stdin.flush()
        assert worker.wait(120) == 1
    finally:
        worker.kill()
        worker.communicate()
    assert run.directory.state is RunState.FAILED
    message = run.directory.read_status().error.message
    assert message.startswith("out of memory: 1.3")
    assert "GiB were asked for" in message
    assert "train.batch_size (64)" in message
    assert "model.d_inner (200000)" in message
    assert message in run.directory.error_file.read_text()


def test_a_missing_compiler_is_named_with_its_remedy():
    """`train.compile` needs one; PyTorch's own message does not say what to do."""
    write_spec()
    (planned,) = plan_of()
    run = RunDirectory(prepared_job(planned).directory)
    error = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})
    text = "InvalidCxxCompiler: No working C++ compiler found\n\nSet TORCHDYNAMO_VERBOSE=1 for more"
    assert record_failure(run, error(text)) is RunState.FAILED
    assert run.read_status().error.message == (
        "InvalidCxxCompiler: No working C++ compiler found; install a C++ compiler (g++, or the "
        "one that CXX names), or drop train.compile"
    )
