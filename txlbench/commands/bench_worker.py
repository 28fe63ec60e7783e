"""Runs one workload of `bench` in a process of its own, so that its peak memory is its own.

`python -m txlbench.commands.bench_worker` reads the workload as JSON from standard input and
repeats it: the suite's own training loop, evaluation, or windows of context losses.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from txlbench.config.base import AttentionSpan
from txlbench.config.benchmarks import CONTEXTS, VOCABULARY, Workload
from txlbench.config.train import TrainConfig
from txlbench.data.streams import Batch
from txlbench.evaluation.context_losses import PartialLosses, context_losses
from txlbench.evaluation.context_reading import read_windows
from txlbench.evaluation.scoring import zero_memory
from txlbench.machine import peak_memory, set_allocator
from txlbench.models.factory import build_model
from txlbench.models.interface import LanguageModel
from txlbench.records.finding_schema import BenchTiming, Rate
from txlbench.seeding import seed_everything
from txlbench.training.loop import Hooks, Settings, train
from txlbench.training.optimisation import build_optimiser
from txlbench.training.runtime import autocast
from txlbench.training.self_test import not_fused, settle_attention
from txlbench.training.state import TrainingState, empty_memories

Repeat = Callable[[], None]


@dataclass(frozen=True)
class PreparedWork:
    """A workload that can be timed.

    Attributes:
        repeat: does it once, from where the time before ended.
        attention: on which path.
        warning: why that is the plain one.
    """

    repeat: Repeat
    attention: str | None
    warning: str | None = None


@contextmanager
def prepared(workload: Workload, device: torch.device) -> Iterator[PreparedWork]:
    """Builds what a workload needs."""
    torch.manual_seed(1)
    model = build_model(workload.model, VOCABULARY).to(device)
    if workload.work == "train":
        yield _training(model, workload, device)
        return
    model.eval()
    make = _contexts if workload.work == "context_losses" else _streaming
    with torch.no_grad():
        start = model.initial_state(1, AttentionSpan(mem_len=workload.mem_len))
        path = model.attention_path(model.evaluation_state(start))
        yield PreparedWork(make(model, workload, device), path)


def _tokens(workload: Workload, length: int, device: torch.device) -> Tensor:
    source = torch.Generator().manual_seed(2)
    size = (workload.batch_size, length)
    return torch.randint(VOCABULARY, size, generator=source).to(device)


def _training(model: LanguageModel, workload: Workload, device: torch.device) -> PreparedWork:
    """Steps of the training loop; memory is full after the first."""
    config = TrainConfig(
        tgt_len=workload.tgt_len,
        mem_len=workload.mem_len,
        batch_size=workload.batch_size,
        max_step=10**6,
        log_interval=10**6,
        eval_interval=10**6,
    )
    span = AttentionSpan(mem_len=workload.mem_len)
    settings = Settings(config, span, device, workload.dtype, workload.model.n_layer)
    attention = settle_attention(model, workload.model, settings)
    optimiser = build_optimiser(model.parameters(), config)
    state = TrainingState(model, optimiser, empty_memories(model, config, span))
    tokens = _tokens(workload, workload.tgt_len + 1, device)
    batch = Batch(tokens[:, :-1], tokens[:, 1:], workload.tgt_len, False)

    def repeat() -> None:
        end = state.progress.step + workload.units
        hooks = Hooks(
            log=lambda _: None,
            validate=lambda: 0.0,
            save=lambda _: None,
            should_stop=lambda: state.progress.step >= end,
        )
        train(state, _Same(batch), settings, hooks)

    if attention is None:
        return PreparedWork(repeat, None)
    warning = None if attention.reason is None else not_fused(attention.reason)
    return PreparedWork(repeat, attention.path, warning)


class _Same:
    """The same batch at every step."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def __getitem__(self, step: int) -> Batch:
        return self.batch


def _streaming(model: LanguageModel, workload: Workload, device: torch.device) -> Repeat:
    """Segments with a full memory and their losses; one token at a time where that is asked."""
    length = workload.tgt_len
    tokens = _tokens(workload, length + 1, device)
    full = zero_memory(model, workload.batch_size, AttentionSpan(mem_len=workload.mem_len))
    with autocast(workload.dtype, device):
        state = model.evaluation_state(full)

    def repeat() -> None:
        nonlocal state
        with autocast(workload.dtype, device):
            for _ in range(workload.units):
                hidden, state = model(tokens[:, :-1], state)
                if workload.work == "generate":
                    model.log_probs(hidden[:, -1]).topk(40)
                else:
                    model.losses(hidden, tokens[:, 1:]).sum().item()

    return repeat


def _contexts(model: LanguageModel, workload: Workload, device: torch.device) -> Repeat:
    """Losses at ten contexts, from one pass over the windows."""
    contexts = np.array(CONTEXTS, dtype=np.int64)
    step = CONTEXTS[1] - CONTEXTS[0]
    positions = CONTEXTS[-1] + step * np.arange(workload.units, dtype=np.int64)
    ids = np.random.default_rng(3).integers(VOCABULARY, size=int(positions[-1]) + 1)
    reader, at_once = read_windows(model, workload.model, contexts, device)

    def repeat() -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            PartialLosses(Path(folder) / "losses.part") as kept,
        ):
            context_losses(
                reader,
                ids,
                contexts,
                positions,
                kept,
                at_once=at_once,
                device=device,
                progress=lambda *_: None,
            )

    return repeat


SQUARE = 2048
"""Rows and columns of the matrices whose product measures the machine."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def measure(workload: Workload, device: torch.device, rounds: int) -> BenchTiming:
    """Tokens a second over `rounds` repetitions, and the machine's rate between them.

    The first two repetitions warm up: they allocate, compile, and fill the memory.
    """
    seed_everything(1)
    product = matrix_product(DTYPES[workload.dtype], device)
    with prepared(workload, device) as work:
        for _ in range(2):
            work.repeat()
        seconds, products = by_turns(work.repeat, product, rounds, device)
    rates = sorted(workload.tokens / each for each in seconds)
    gflops = 2 * SQUARE**3 / statistics.median(products) / 1e9
    median = statistics.median(rates)
    share = None if workload.flops is None else workload.flops * median / (gflops * 1e9)
    return BenchTiming(
        tokens_per_second=Rate(median=median, min=rates[0], max=rates[-1]),
        matmul_gflops=gflops,
        matmul_share=share,
        peak_memory_bytes=peak_memory(str(device)),
        device_name=torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        attention=work.attention,
        warning=work.warning,
    )


def matrix_product(dtype: torch.dtype, device: torch.device) -> Callable[[], None]:
    """A product of two square matrices, into a buffer that is there."""
    one, other, out = (torch.ones(SQUARE, SQUARE, dtype=dtype, device=device) for _ in range(3))

    def multiply() -> None:
        torch.mm(one, other, out=out)

    multiply()
    return multiply


def by_turns(
    repeat: Callable[[], object], product: Callable[[], None], rounds: int, device: torch.device
) -> tuple[list[float], list[float]]:
    """Seconds of each, round by round, so that a machine that changes its speed changes both."""
    pairs = [(timed(repeat, device), timed(product, device)) for _ in range(rounds)]
    return [one for one, _ in pairs], [other for _, other in pairs]


def timed(repeat: Callable[[], object], device: torch.device) -> float:
    """Seconds that `repeat` takes, until the device has done its part."""
    _synchronise(device)
    begin = time.perf_counter()
    repeat()
    _synchronise(device)
    return time.perf_counter() - begin


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    workload, device = Workload(**asked["workload"]), torch.device(asked["device"])
    if workload.work != "train":
        set_allocator()  # as the verbs do that evaluate and generate
    found = measure(workload, device, asked["rounds"])
    print(found.model_dump_json(), flush=True)


if __name__ == "__main__":
    main()
