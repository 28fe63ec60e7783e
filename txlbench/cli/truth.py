"""`txlbench truth`: runs on the corpus whose best loss is known, held against it."""

from pathlib import Path
from typing import Any

import click

from txlbench.cli.number_lists import ContextList, ShareList
from txlbench.cli.published import show
from txlbench.cli.reading import losses_of


@click.command()
@click.argument("directory", default="results/planted", type=click.Path(path_type=Path))
@click.option("--contexts", type=ContextList(), help="Predecessors.  [default: 32:288:64]")
@click.option(
    "--r",
    "shares",
    type=ShareList(),
    default="0.1,0.5,1.0",
    show_default=True,
    help="Shares of tokens that are the hardest.",
)
@click.option(
    "--tokens", type=click.IntRange(min=1), default=4000, show_default=True, help="Tokens scored."
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the page goes.  [default: DIRECTORY-truth]",
)
def truth(directory: Path, contexts: tuple[int, ...] | None, **options: Any) -> None:
    """Hold measured losses and RECL against what is known of them.

    DIRECTORY is an experiment on `planted`, a made corpus of which the lowest possible loss is
    known at every context: results/planted, as `make planted` leaves it.
    """
    from txlbench.execution.ground_truth import CONTEXTS, hold_against_truth
    from txlbench.execution.recl_request import ReclRequest
    from txlbench.records.experiment_directory import experiments_at

    request = ReclRequest(groups=(), contexts=contexts or CONTEXTS, **options)
    for experiment in experiments_at([directory]):
        show(hold_against_truth(experiment, request, losses_of))
