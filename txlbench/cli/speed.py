"""`txlbench speed`: what a new token costs in evaluation.

`txlbench bench`: how fast this machine trains, evaluates and generates.
"""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from txlbench.cli.options import LengthList, show


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--attention-lengths",
    type=LengthList(),
    default="800,1800,2800,3800",
    show_default=True,
    help="Keys that a token sees.",
)
@click.option(
    "--tgt-lens",
    type=LengthList(),
    default="1,128,512",
    show_default=True,
    help="Tokens a segment where state is reused; the attention length is always among them.",
)
@click.option("--batch-size", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--rounds", type=click.IntRange(min=2), default=5, show_default=True)
@click.option("--precision", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option(
    "--checkpoint", type=click.Choice(["best", "last"]), default="best", show_default=True
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where results go.  [default: results/speed-HASH]",
)
def speed(**options: Any) -> None:
    """Time one new token: a sliding window read anew, or state that is reused (Table 9).

    The first MODEL that attends is the baseline, read in sliding windows moved on by one token,
    as a transformer without recurrence must be. Beside what other commands take, a MODEL may be
    FILE.yaml:LABEL, a row of an experiment with random weights: speed does not depend on them.
    A recurrent MODEL is read in the shortest segments and in those of the attention length.
    """
    from txlbench.commands.speed import SpeedRequest, run_speed

    show(run_speed(SpeedRequest(**options)))


@click.command()
@click.option(
    "--sizes",
    default="small",
    show_default=True,
    metavar="NAME,...",
    help="small (4 layers, d_model 256), base (12 layers, d_model 512).",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="BENCH.json",
    help="Another result to compare with.",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads.  [default: every core]")
@click.option(
    "--rounds",
    type=click.IntRange(min=3),
    default=7,
    show_default=True,
    help="Repetitions that are timed.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results/bench"),
    show_default=True,
)
def bench(sizes: str, **options: Any) -> None:
    """Time training, streaming evaluation, generation and context losses.

    Tokens a second in fp32 and bf16, peak memory, and the share of the matrix-product rate that
    the machine reaches. Use it on a machine that does nothing else.
    """
    from txlbench.commands.bench import BenchRequest
    from txlbench.commands.bench import bench as run

    names = tuple(dict.fromkeys(name.strip() for name in sizes.split(",")))
    command = shlex.join(["txlbench", *sys.argv[1:]])
    request = BenchRequest(sizes=names, command=command, **options)
    show(run(request, _say))


def _say(work: Any) -> None:
    click.echo(f"{work.work} {work.size} {work.dtype}", err=True)
