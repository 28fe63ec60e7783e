"""`txlbench eval`: the loss of any model on any text."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from txlbench.cli.number_lists import LengthList
from txlbench.config.catalogue import Level
from txlbench.config.section import Split
from txlbench.config.units import displayed, shown

if TYPE_CHECKING:
    from txlbench.execution.evaluate import Answer


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
    from txlbench.execution.evaluate import evaluate as run_evaluation
    from txlbench.execution.question import Question

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
