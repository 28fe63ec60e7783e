"""Verbs that look at what one model does: `attention` and `generate`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from txlbench.cli.options import (
    MOST_NUMBERS,
    NumberRange,
    checkpoint_option,
    corpus_option,
    count_option,
    device_option,
    format_option,
    level_option,
    out_option,
    precision_option,
    show,
    split_option,
    verb,
    width_option,
)
from txlbench.errors import UserError

if TYPE_CHECKING:
    from txlbench.reporting.figures.style import Look


@verb(
    "attention",
    "txlbench attention quick/Transformer-XL --tokens 2000",
    "txlbench attention quick/Transformer-XL --heads 1.1,1.2 --at 1000 --out results/heads",
)
@click.argument("model")
@corpus_option
@level_option
@split_option
@count_option("--tokens", 10_000, "Tokens whose attention is counted, spread over the split.")
@click.option("--whole", is_flag=True, help="Counts all tokens of the split.")
@count_option(
    "--attention-length",
    None,
    "Number of keys that each query sees, itself included.  [default: as many as in training]",
)
@click.option(
    "--heads",
    metavar="L.H,...",
    help="Heads, as LAYER.HEAD from 1, whose attention to single tokens is shown.  [default: the "
    "one that looks farthest back of the first, the middle and the last layer]",
)
@count_option("--at", None, "Place in the split of the first token shown.  [default: drawn]")
@count_option("--targets", 12, "Consecutive tokens shown.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Draws that place."
)
@device_option
@checkpoint_option
@width_option
@out_option("Directory of the results.", instead="results/attention-HASH")
def attention(heads: str | None, look: "Look | None", **options: Any) -> None:
    """Show where the heads of MODEL attend, and what their scores consist of.

    As the paper's Figures 5 to 7: the mean attention of every head by relative distance; the
    attention of chosen heads to single tokens, the strongest fifth marked; and the softmax of each
    term of the scores alone. A table gives mean distance and entropy of each head, and by layer the
    scale of each term, where a wrong shift or scale shows at once.

    Models of transformers are read in windows, for what they return.
    """
    from txlbench.cli.progress import window_progress
    from txlbench.commands.show_attention import AttentionRequest, run_attention

    chosen = None if heads is None else tuple(dict.fromkeys(map(_head, heads.split(","))))
    request = AttentionRequest(heads=chosen, **options)
    with window_progress() as progress:
        show(run_attention(request, progress, look))


def _head(text: str) -> tuple[int, int]:
    layer, _, head = text.partition(".")
    if not (layer.isdecimal() and head.isdecimal()):
        raise UserError(f"--heads: {text!r} found", "give LAYER.HEAD, such as 1.2")
    return int(layer), int(head)


@verb(
    "generate",
    "txlbench generate quick/Transformer-XL --prompt 'The ' --tokens 200",
    "txlbench generate quick/Transformer-XL --prompt-file start.txt --top-k 1 --format json",
    "txlbench generate quick/Transformer-XL --samples 3 --prompt-tokens 200 --split test",
)
@click.argument("model")
@click.option("--prompt", metavar="TEXT", help="Text to continue.")
@click.option(
    "--prompt-file", type=click.Path(path_type=Path), metavar="FILE", help="File with that text."
)
@count_option(
    "--prompt-tokens", None, "Continues as many tokens, drawn from a split, beside what follows."
)
@count_option(
    "--samples", None, "Samples of a page.  [default: 3 with --prompt-tokens]", most=MOST_NUMBERS
)
@corpus_option
@split_option
@count_option("--tokens", 500, "Tokens to generate.")
@count_option("--top-k", 40, "Samples from the K most likely tokens; 0 means from all.", 0)
@click.option(
    "--temperature",
    type=NumberRange(min=1e-6, max=1e6),
    default=1.0,
    show_default=True,
    help="Divides the logits before sampling.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=2**63 - 1),
    default=1,
    show_default=True,
    help="Random seed of the sampling; one seed gives one text.",
)
@count_option("--mem-len", None, "Cached states of earlier tokens.  [default: as trained]", 0)
@level_option
@device_option
@precision_option
@checkpoint_option
@out_option("Directory of a page of samples.", instead="results/samples-HASH")
@format_option
def generate(format_: str, top_k: int, samples: int | None, **options: Any) -> None:
    """Generate a continuation of a text, as in the paper's Appendix E.

    Each token is sampled from the most likely ones, with a KV cache where the encoding allows it.
    Models of Hugging Face continue with their own tokenizer and cache.

    With --samples or --prompt-tokens it writes a page like the paper's Tables 11 to 13: context,
    sample and reference side by side. Teacher forcing then draws each token again.
    """
    from txlbench.commands.generate import GenerateRequest, generate_text

    options["top_k"] = top_k or None
    if samples is not None or options["prompt_tokens"] is not None:
        _show_samples(samples or 3, format_, options)
        return
    for name in ("corpus", "split", "out", "prompt_tokens"):
        if options.pop(name) is not None:
            raise UserError(f"--{name}: is of a page of samples", "give --samples too")
    made = generate_text(GenerateRequest(**options))
    if format_ == "json":
        click.echo(json.dumps(vars(made), indent=2))
        return
    click.echo(made.text)
    speed = len(made.ids) / made.seconds
    how = "read anew for each" if made.mem_len is None else f"mem_len {made.mem_len}"
    click.echo(f"{len(made.ids)} tokens, {speed:,.0f} a second, {how}", err=True)


def _show_samples(samples: int, format_: str, options: dict[str, Any]) -> None:
    from txlbench.commands.samples import SamplesRequest, run_samples

    published = run_samples(SamplesRequest(samples=samples, **options))
    if format_ == "json":
        click.echo(json.dumps(published.record.content, indent=2))
        return
    show(published)
