"""`txlbench generate`: a model goes on with a text."""

import json
from pathlib import Path
from typing import Any, get_args

import click

from txlbench.config.catalogue import Level


@click.command()
@click.argument("model")
@click.option("--prompt", help="The text to go on with.")
@click.option("--prompt-file", type=click.Path(path_type=Path), help="A file that has it.")
@click.option(
    "--tokens", type=click.IntRange(min=1), default=500, show_default=True, help="To add."
)
@click.option(
    "--top-k",
    type=click.IntRange(min=0),
    default=40,
    show_default=True,
    help="The likeliest tokens that are drawn from; 0 for all, 1 for the likeliest.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=1e-6, max=1e6),
    default=1.0,
    show_default=True,
    help="Below 1 the likeliest become likelier.",
)
@click.option("--seed", type=click.IntRange(min=0, max=2**63 - 1), default=1, show_default=True)
@click.option("--mem-len", type=click.IntRange(min=0), help="Cached states.  [default: as trained]")
@click.option("--level", type=click.Choice(get_args(Level)), help="What a token is.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option(
    "--checkpoint", type=click.Choice(["best", "last"]), default="best", show_default=True
)
@click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def generate(format_: str, top_k: int, **options: Any) -> None:
    """Let MODEL go on with a text, as in the paper's Appendix E.

    Each token is drawn from the likeliest 40, in one pass that reads the token before it beside
    the keys and values of all that is remembered. The same seed draws the same text.
    """
    from txlbench.execution.generation import Wish, continue_text

    made = continue_text(Wish(top_k=top_k or None, **options))
    if format_ == "json":
        click.echo(json.dumps(vars(made), indent=2))
        return
    click.echo(made.text)
    speed = len(made.ids) / made.seconds
    how = "read anew for each" if made.mem_len is None else f"mem_len {made.mem_len}"
    click.echo(f"{len(made.ids)} tokens, {speed:,.0f} a second, {how}", err=True)
