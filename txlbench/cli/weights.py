"""`txlbench import` and `txlbench export`: weights in and out."""

from pathlib import Path

import click


@click.command("import")
@click.argument("source")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="The run directory to make, for example results/imported/NAME.",
)
@click.option(
    "--reversed-clusters",
    is_flag=True,
    help="The tail clusters of hf:DIR are in the official PyTorch order.",
)
def import_(source: str, out: Path, reversed_clusters: bool) -> None:
    """Make a run directory of somebody else's weights.

    SOURCE is hf:DIR, a Hugging Face Transformer-XL folder; torch:FILE, the official PyTorch code's
    model file or a state dict; or tf:PREFIX, an official TensorFlow checkpoint. No code in them
    is executed.
    """
    from txlbench.execution.imports import import_model

    run, converted = import_model(source, out, reversed_clusters)
    count = sum(weight.numel() for weight in converted.weights.values())
    click.echo(f"{run.path}: {count:,} weights, {converted.vocabulary_size:,} symbols")
    for note in converted.notes:
        click.echo(f"note: {note}", err=True)


@click.command("export")
@click.argument("model")
@click.option("--to", "target", required=True, help="hf:DIR, a Hugging Face folder to make.")
def export(model: str, target: str) -> None:
    """Write MODEL's weights in a form that other programs load."""
    from txlbench.execution.imports import export_model

    click.echo(export_model(model, target))
