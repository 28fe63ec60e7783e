"""`txlbench import` and `txlbench export`: weights in and out.

`txlbench eval`: the loss of any model on any text.

`txlbench generate`: a model goes on with a text.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from txlbench.cli.options import LengthList
from txlbench.config.base import Split, displayed, shown
from txlbench.config.catalogue import Level

if TYPE_CHECKING:
    from txlbench.commands.evaluate import Answer


@click.command("eval")
@click.argument("model")
@click.option("--corpus", help="A corpus by name or the path of a text.  [default: as trained]")
@click.option(
    "--level", type=click.Choice(get_args(Level)), help="What a token of a text is; default byte."
)
@click.option("--tokens", type=click.Path(path_type=Path), help="Token ids, a 1-D .npy file.")
@click.option("--split", type=click.Choice(get_args(Split)), default="test", show_default=True)
@click.option("--batch-size", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--tgt-len", type=click.IntRange(min=1), help="Tokens a segment.")
@click.option("--mem-len", type=click.IntRange(min=0), help="Cached states.")
@click.option(
    "--attention-lengths", type=LengthList(), default=(), help="Keys a query sees; a pass each."
)
@click.option("--clamp-len", type=click.IntRange(min=0), help="Farther distances count as this.")
@click.option(
    "--same-length/--no-same-length",
    default=None,
    help="Every query sees exactly mem_len keys, itself included.",
)
@click.option("--exact", is_flag=True, help="One number at every batch size: streams are warmed.")
@click.option("--zero-memory", is_flag=True, help="Begin with zeros that are attended to.")
@click.option("--losses", type=click.Path(path_type=Path), help="Write each loss to this .npz.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option(
    "--checkpoint", type=click.Choice(["best", "last"]), default="best", show_default=True
)
@click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def evaluate(format_: str, **options: Any) -> None:
    """Measure MODEL on a split of a corpus, or on token ids.

    MODEL is a run directory, EXPERIMENT/LABEL or EXPERIMENT/RUN-ID under results/, runs:/ID of
    MLflow, or hf:DIR, torch:FILE, tf:PREFIX. What is not given is as the model was trained.
    """
    from txlbench.commands.evaluate import evaluate as run_evaluation
    from txlbench.commands.texts import Question

    answers = run_evaluation(Question(**options))
    for answer in answers:
        if answer.suspicion:
            click.echo(f"Warning: {answer.suspicion}", err=True)
    if format_ == "json":
        click.echo(json.dumps([_plain(answer) for answer in answers], indent=2))
        return
    for answer in answers:
        click.echo(_sentence(answer))


def _plain(answer: "Answer") -> dict[str, Any]:
    scored = answer.score
    return {
        "loss": scored.loss,
        **{unit: displayed(scored.loss, unit) for unit in answer.units},
        "tokens": scored.tokens,
        "dropped": scored.dropped,
        "cold_starts": scored.cold_starts,
        "dtype": "fp32",
        "measurement": answer.measurement.model_dump(mode="json"),
    }


def _sentence(answer: "Answer") -> str:
    """One line: the numbers, then how they were obtained."""
    scored, how = answer.score, answer.measurement
    numbers = ", ".join(f"{shown(displayed(scored.loss, u), u)} {u}" for u in answer.units)
    settings = [f"{how.regime}, tgt_len {how.tgt_len}, mem_len {how.mem_len}"]
    if how.attention_length:
        settings.insert(0, f"attention length {how.attention_length}")
    if how.regime == "windows":
        settings.append(f"stride {how.stride}")
    if how.same_length and not how.attention_length:
        settings.append("same_length")
    if how.clamp_len is not None:
        settings.append(f"clamp_len {how.clamp_len}")
    settings.append("exact" if how.exact else f"{scored.cold_starts} cold starts")
    return (
        f"{numbers} ({scored.loss:.6f} nats) on {scored.tokens:,} tokens, {scored.dropped} "
        f"dropped: {', '.join(settings)}, batch {how.batch_size}"
    )


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
    from txlbench.commands.generate import Wish, continue_text

    made = continue_text(Wish(top_k=top_k or None, **options))
    if format_ == "json":
        click.echo(json.dumps(vars(made), indent=2))
        return
    click.echo(made.text)
    speed = len(made.ids) / made.seconds
    how = "read anew for each" if made.mem_len is None else f"mem_len {made.mem_len}"
    click.echo(f"{len(made.ids)} tokens, {speed:,.0f} a second, {how}", err=True)


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
    from txlbench.commands.load_model import import_model

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
    from txlbench.commands.load_model import export_model

    click.echo(export_model(model, target))
