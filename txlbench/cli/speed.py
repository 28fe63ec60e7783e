"""`txlbench speed`, the cost of a new token, and `txlbench bench`, the speed of this machine."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from txlbench.cli.options import (
    LENGTHS,
    checkpoint_option,
    count_option,
    device_option,
    out_option,
    show,
    verb,
    width_option,
)

if TYPE_CHECKING:
    from txlbench.reporting.figures.style import Look


@verb(
    "speed",
    "txlbench speed experiments/quick.yaml:Transformer-XL --attention-lengths 128,256",
    "txlbench speed quick/Transformer-XL 'quick/XL without recurrence' --attention-lengths 64",
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--attention-lengths",
    type=LENGTHS,
    default="800,1800,2800,3800",
    show_default=True,
    help="Numbers of keys that a token sees.",
)
@click.option(
    "--tgt-lens",
    type=LENGTHS,
    default="1,128,512",
    show_default=True,
    help="Segment lengths with cached state; the attention length is added to them.",
)
@count_option("--batch-size", 1, "Sequences that are read side by side.")
@count_option("--rounds", 5, "Timed repetitions.", 2)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    default="fp32",
    show_default=True,
    help="Number format of the matrix products.",
)
@device_option
@checkpoint_option
@width_option
@out_option("Directory of the results.", instead="results/speed-HASH")
def speed(look: "Look | None", **options: Any) -> None:
    """Time the evaluation of one new token, with a sliding window and with cached state (Table 9).

    The first MODEL with attention is the baseline. It reads a sliding window that moves on by one
    token, as a transformer without recurrence must; the others reuse their cached states. Besides
    the forms of `txlbench eval`, a MODEL may be FILE.yaml:LABEL, a row of an experiment file with
    random weights, since speed does not depend on the weights.
    """
    from txlbench.commands.speed import SpeedRequest, run_speed

    show(run_speed(SpeedRequest(**options), look))


@verb(
    "bench",
    "txlbench bench",
    "txlbench bench --sizes small,base --out results/new --against results/bench/bench.json",
)
@click.option(
    "--sizes",
    default="small",
    show_default=True,
    metavar="NAME,...",
    help="Models to time: small (4 layers, d_model 256), base (12 layers, d_model 512).",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="BENCH.json",
    help="Earlier result to compare with; its history by commit goes on in the new one.",
)
@device_option
@count_option("--threads", None, "CPU threads.  [default: one for each core]")
@count_option("--rounds", 7, "Timed repetitions.", 3)
@width_option
@out_option("Directory of the results.", Path("results/bench"))
def bench(sizes: str, look: "Look | None", **options: Any) -> None:
    """Time training, streaming evaluation, generation and context losses on this machine.

    Gives tokens a second in fp32 and bf16, peak memory, and the share of the machine's matrix
    product rate that is reached. Other work on the machine distorts the figures.
    """
    from txlbench.commands.bench import BenchRequest
    from txlbench.commands.bench import bench as run

    names = tuple(dict.fromkeys(name.strip() for name in sizes.split(",")))
    command = shlex.join(["txlbench", *sys.argv[1:]])
    request = BenchRequest(sizes=names, command=command, **options)
    show(run(request, _say, look))


def _say(work: Any) -> None:
    click.echo(f"{work.work} {work.size} {work.dtype}", err=True)
