"""`txlbench recl`: the relative effective context length of groups of models.

`txlbench truth`: runs on the corpus whose best loss is known, held against it.
"""

from pathlib import Path
from typing import Any, get_args

import click

from txlbench.cli.options import ContextList, ShareList, losses_of, show
from txlbench.config.base import Split
from txlbench.config.catalogue import Level


@click.command()
@click.option(
    "--models",
    "groups",
    multiple=True,
    required=True,
    metavar="A,B,...",
    help="A group: models or loss files (FILE.npz). Repeat it for several groups.",
)
@click.option(
    "--contexts",
    type=ContextList(),
    help="Predecessors.  [default: those of the loss files, else 100:1000:100]",
)
@click.option(
    "--r",
    "shares",
    type=ShareList(),
    default="0.1,0.5,1.0",
    show_default=True,
    help="Shares of tokens that are the hardest.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.01,
    show_default=True,
    help="Relative gain under which the walk stops.",
)
@click.option("--tokens", type=click.IntRange(min=1), help="Tokens scored; of a file, its first.")
@click.option("--corpus", help="A corpus by name or the path of a text.  [default: as trained]")
@click.option("--level", type=click.Choice(get_args(Level)), help="Of a text.  [default: byte]")
@click.option("--split", type=click.Choice(get_args(Split)), help="[default: test]")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    help="Windows read side by side.  [default: as many as the caches hold]",
)
@click.option(
    "--attention-length",
    type=click.IntRange(min=1),
    help="Keys a query sees, itself included.  [default: all of the context]",
)
@click.option(
    "--checkpoint", type=click.Choice(["best", "last"]), default="best", show_default=True
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where results go.  [default: results/recl-HASH]",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the test against noise and of the resamples.",
)
def recl(groups: tuple[str, ...], **options: Any) -> None:
    """Measure how much context each model of a group really uses.

    Models of a group share a baseline (Dai et al. 2019, Appendix C), so compare models of like
    size. Losses are kept: another --r, --threshold or group computes nothing again.
    """
    from txlbench.commands.recl import run_recl, warnings_of
    from txlbench.commands.recl_request import ReclRequest

    request = ReclRequest(groups=tuple(map(_names, groups)), **options)
    published = run_recl(request, losses_of)
    show(published, warnings_of(published.record))


def _names(group: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in group.split(","))
    if not all(names):
        raise click.UsageError(
            f"--models {group!r} names no model somewhere", click.get_current_context()
        )
    return names


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
    from txlbench.commands.recl_request import ReclRequest
    from txlbench.commands.truth import CONTEXTS, hold_against_truth
    from txlbench.records.experiment_directory import experiments_at

    request = ReclRequest(groups=(), contexts=contexts or CONTEXTS, **options)
    for experiment in experiments_at([directory]):
        show(hold_against_truth(experiment, request, losses_of))
