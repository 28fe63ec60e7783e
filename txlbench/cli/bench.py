"""`txlbench bench`: how fast this machine trains, evaluates and generates."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from txlbench.cli.published import show


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
    from txlbench.execution.bench import BenchRequest
    from txlbench.execution.bench import bench as run

    names = tuple(dict.fromkeys(name.strip() for name in sizes.split(",")))
    command = shlex.join(["txlbench", *sys.argv[1:]])
    request = BenchRequest(sizes=names, command=command, **options)
    show(run(request, _say))


def _say(work: Any) -> None:
    click.echo(f"{work.work} {work.size} {work.dtype}", err=True)
