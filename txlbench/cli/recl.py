"""`txlbench recl`, the effective context length of models, and `truth`, the check on RECL."""

from pathlib import Path
from typing import Any

import click

from txlbench.cli.options import (
    CONTEXTS,
    NumberRange,
    checkpoint_option,
    corpus_option,
    count_option,
    device_option,
    level_option,
    out_option,
    precision_option,
    seed_option,
    shares_option,
    show,
    split_option,
    verb,
)


@verb(
    "recl",
    "txlbench recl --models quick/Transformer-XL --contexts 16:128:16 --tokens 500",
    "txlbench recl --models a.npz,b.npz --models c.npz --r 0.1,1.0",
)
@click.option(
    "--models",
    "groups",
    multiple=True,
    required=True,
    metavar="A,B,...",
    help="One group of models or loss files (FILE.npz); repeat it for further groups.",
)
@click.option(
    "--contexts",
    type=CONTEXTS,
    help="Context lengths in tokens.  [default: those of the loss files, else 100:1000:100]",
)
@shares_option
@click.option(
    "--threshold",
    type=NumberRange(0, 1, min_open=True, max_open=True),
    default=0.01,
    show_default=True,
    help="Relative gain below which a longer context counts as useless.",
)
@count_option("--tokens", None, "Tokens to score.  [default: 10,000; all of a loss file]")
@corpus_option
@level_option
@split_option
@device_option
@count_option("--batch-size", None, "Windows read side by side.  [default: what fits the caches]")
@count_option(
    "--attention-length",
    None,
    "Number of keys that each query sees, itself included.  [default: the whole context]",
)
@count_option(
    "--sinks",
    None,
    "Number of the window's first keys that queries see besides; of pretrained models, with "
    "--attention-length.",
)
@checkpoint_option
@precision_option
@out_option("Directory of the results.", instead="results/recl-HASH")
@seed_option
def recl(groups: tuple[str, ...], **options: Any) -> None:
    """Measure how much context each model of a group really uses (RECL).

    The relative effective context length is the longest context at which the loss on the hardest
    tokens still improves by the threshold, relative to the best model of the group at the shorter
    context (Dai et al. 2019, Appendix C): so compare models of similar size. Beside it stands RECL
    above the null, which counts a step only if a sign-flip test tells it from noise.

    Each context is measured in windows of tokens that start with empty memory. Losses are kept:
    another --r, --threshold or group computes nothing again, and an interrupted call resumes.
    Under torchrun its processes share the windows.
    """
    from txlbench.cli.progress import window_progress
    from txlbench.commands.names import split_models
    from txlbench.commands.recl import run_recl, share_windows
    from txlbench.commands.recl_request import ReclRequest
    from txlbench.machine import is_follower

    request = ReclRequest(groups=tuple(map(split_models, groups)), **options)
    if is_follower():
        share_windows(request)
        return
    with window_progress() as progress:
        published = run_recl(request, progress)
    show(published)


@verb("truth", "txlbench truth results/planted", "txlbench truth results/planted --tokens 2000")
@click.argument("directory", default="results/planted", type=click.Path(path_type=Path))
@click.option("--contexts", type=CONTEXTS, help="Context lengths in tokens.  [default: 32:288:64]")
@shares_option
@count_option("--tokens", 4000, "Tokens to score.")
@device_option
@seed_option
@out_option("Directory of the results.", instead="DIRECTORY-truth")
def truth(directory: Path, contexts: tuple[int, ...] | None, **options: Any) -> None:
    """Compare measured losses and RECL with their true values.

    DIRECTORY is an experiment on the corpus `planted`, which is generated so that the lowest
    possible loss of every token is known at every context; `make planted` trains one.
    """
    from txlbench.cli.progress import window_progress
    from txlbench.commands.recl_request import ReclRequest
    from txlbench.commands.truth import CONTEXTS, hold_against_truth
    from txlbench.records.experiment_directory import experiments_at

    request = ReclRequest(groups=(), contexts=contexts or CONTEXTS, **options)
    for experiment in experiments_at([directory]):
        with window_progress() as progress:
            published = hold_against_truth(experiment, request, progress)
        show(published)
