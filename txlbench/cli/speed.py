"""`txlbench speed`: what a new token costs in evaluation."""

from pathlib import Path
from typing import Any

import click

from txlbench.cli.number_lists import LengthList
from txlbench.cli.published import show


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
    from txlbench.execution.speed import SpeedRequest, run_speed

    show(run_speed(SpeedRequest(**options)))
