"""`txlbench recl`, `context` and `probe`, what context models use, and `truth`, a check on RECL."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from txlbench.cli.options import (
    CONTEXTS,
    LENGTHS,
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
    width_option,
)

if TYPE_CHECKING:
    from txlbench.reporting.figures.style import Look

OptionT = TypeVar("OptionT", bound=Callable[..., Any])


def group_options(function: OptionT) -> OptionT:
    """The options of `recl` and `context`: models in groups, and how they are measured."""
    options = (
        click.option(
            "--models",
            "groups",
            multiple=True,
            required=True,
            metavar="A,B,...",
            help="One group of models or loss files (FILE.npz); repeat it for further groups.",
        ),
        click.option(
            "--contexts",
            type=CONTEXTS,
            help="Context lengths in tokens.  [default: those of the loss files, else "
            "100:1000:100]",
        ),
        shares_option,
        click.option(
            "--threshold",
            type=NumberRange(0, 1, min_open=True, max_open=True),
            default=0.01,
            show_default=True,
            help="Relative gain below which a longer context counts as useless.",
        ),
        count_option("--tokens", None, "Tokens to score.  [default: 10,000; all of a loss file]"),
        corpus_option,
        level_option,
        split_option,
        device_option,
        count_option(
            "--batch-size", None, "Windows read side by side.  [default: what fits the caches]"
        ),
        count_option(
            "--attention-length",
            None,
            "Number of keys that each query sees, itself included.  [default: the whole context]",
        ),
        count_option(
            "--sinks",
            None,
            "Number of the window's first keys that queries see besides; of pretrained models, "
            "with --attention-length.",
        ),
        checkpoint_option,
        precision_option,
        seed_option,
        width_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


@verb(
    "recl",
    "txlbench recl --models quick/Transformer-XL --contexts 16:128:16 --tokens 500",
    "txlbench recl --models a.npz,b.npz --models c.npz --r 0.1,1.0",
)
@group_options
@out_option("Directory of the results.", instead="results/recl-HASH")
def recl(groups: tuple[str, ...], look: "Look | None", **options: Any) -> None:
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
        published = run_recl(request, progress, look)
    show(published)


@verb(
    "context",
    "txlbench context --models quick/Transformer-XL --contexts 16:128:16 --tokens 1000 --dense 16",
    "txlbench context --models a.npz,b.npz --out answer",
)
@group_options
@count_option(
    "--dense", None, "Also measures every context from 1 to 2 L tokens, for the L²M exponent.", 2
)
@out_option("Directory of the results.", instead="results/context-HASH")
def context(groups: tuple[str, ...], look: "Look | None", **options: Any) -> None:
    """Say all that losses by context tell: how much context, what for, and what is not resolved.

    Beside RECL stand the curve of the loss with what a longer context costs, its power law, ICL
    score and V-information, the classes of tokens that gain, LongPPL, the exponent of mutual
    information and a view of single tokens, each with a 95 % interval. A measure that the losses
    do not allow says so in its place.

    The page context.html tells it in words. Losses are kept, as with recl.
    """
    from txlbench.cli.progress import window_progress
    from txlbench.commands.context import ContextRequest, run_context
    from txlbench.commands.names import split_models

    request = ContextRequest(groups=tuple(map(split_models, groups)), **options)
    with window_progress() as progress:
        published = run_context(request, progress, look)
    show(published)


@verb(
    "probe",
    "txlbench probe --models quick/Transformer-XL --contexts 1,4,32 --tokens 1000 --probes far",
    "txlbench probe --models quick/Transformer-XL --probes forgetting --own-memory --lengths 8,16",
)
@click.option(
    "--models", "groups", multiple=True, required=True, metavar="A,B,...", help="Models to probe."
)
@click.option(
    "--probes",
    default="far,forgetting,cache",
    show_default=True,
    metavar="A,B,...",
    help="Probes to make: far context changed, texts repeated, caches cut short.",
)
@click.option(
    "--contexts",
    type=CONTEXTS,
    help="Tokens that stay as they are, or keys of a cache; last the whole context.  "
    "[default: 16,64,256]",
)
@click.option(
    "--changes",
    default="shuffle,shuffle:8,reverse,other,frequent,rare",
    show_default=True,
    metavar="A,B,...",
    help="Changes of the far context; shuffle:W shuffles within W tokens.",
)
@click.option(
    "--lengths",
    type=LENGTHS,
    default="8,16,32,64,128,256",
    show_default=True,
    help="Lengths of texts to recall, in tokens.",
)
@count_option("--texts", 40, "Texts of each length.", 10)
@click.option(
    "--own-memory",
    is_flag=True,
    help="Recalls with the memory of each model's evaluation, not with all that was read.",
)
@count_option("--sinks", 4, "First keys that a cache keeps; of pretrained models.")
@count_option("--tokens", None, "Tokens to score.  [default: 500]")
@corpus_option
@level_option
@split_option
@device_option
@count_option("--batch-size", None, "Windows read side by side.  [default: what fits the caches]")
@checkpoint_option
@precision_option
@seed_option
@width_option
@out_option("Directory of the results.", instead="results/probe-HASH")
def probe(
    groups: tuple[str, ...],
    probes: str,
    changes: str,
    lengths: tuple[int, ...],
    sinks: int,
    look: "Look | None",
    **options: Any,
) -> None:
    """Probe what models do with context that is changed, repeated or cut short.

    Far context is shuffled, reversed, replaced by other text or thinned out, while the nearest
    tokens stay: what is lost tells whether its order or its topic mattered. A text is read twice:
    how long a text a model recalls without fault (fine) and better than chance (coarse). A cache of
    few keys is compared with the whole context, with and without attention sinks.

    The page probe.html tells it in words. What was read is kept, as with recl.
    """
    from txlbench.cli.progress import window_progress
    from txlbench.commands.names import split_models
    from txlbench.commands.probe_request import ProbeRequest
    from txlbench.commands.probes import run_probe
    from txlbench.machine import is_follower

    if is_follower():
        return
    request = ProbeRequest(
        groups=tuple(map(split_models, groups)),
        probes=tuple(probes.split(",")),
        changes=tuple(changes.split(",")),
        lengths=tuple(sorted(lengths)),
        kept_sinks=sinks,
        **options,
    )
    with window_progress() as progress:
        published = run_probe(request, progress, look)
    show(published)


@verb("truth", "txlbench truth results/planted", "txlbench truth results/planted --tokens 2000")
@click.argument("directory", default="results/planted", type=click.Path(path_type=Path))
@click.option("--contexts", type=CONTEXTS, help="Context lengths in tokens.  [default: 32:288:64]")
@shares_option
@count_option("--tokens", 4000, "Tokens to score.")
@device_option
@seed_option
@width_option
@out_option("Directory of the results.", instead="DIRECTORY-truth")
def truth(
    directory: Path, contexts: tuple[int, ...] | None, look: "Look | None", **options: Any
) -> None:
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
            published = hold_against_truth(experiment, request, progress, look)
        show(published)
