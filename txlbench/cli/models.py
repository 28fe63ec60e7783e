"""Verbs of single models: `eval`, `import` and `export`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from txlbench.cli.options import (
    LENGTHS,
    checkpoint_option,
    corpus_option,
    count_option,
    device_option,
    force_option,
    format_option,
    level_option,
    precision_option,
    split_option,
    verb,
)
from txlbench.config.base import RopeKind, displayed, shown
from txlbench.errors import UserError

if TYPE_CHECKING:
    from txlbench.commands.evaluate import EvalRequest, EvalResult, SeedMean


@verb(
    "eval",
    "txlbench eval quick/Transformer-XL --attention-lengths 16,32 --format json",
    "txlbench eval quick/Transformer-XL --corpus my-text.txt --losses losses.npz",
    "txlbench eval quick/Transformer-XL --protocol ours,stride:16,lm-eval,llama.cpp,hf-guide",
)
@click.argument("model")
@corpus_option
@level_option
@click.option(
    "--tokens",
    type=click.Path(path_type=Path),
    metavar="FILE.npy",
    help="One-dimensional array of token ids to measure on, instead of a corpus.",
)
@split_option
@click.option(
    "--whole",
    is_flag=True,
    help="Scores all of the split, not only as many tokens as the row's evaluate.tokens.",
)
@count_option("--batch-size", None, "Streams that are read side by side.  [default: as the row]")
@count_option("--tgt-len", None, "Tokens in a segment.  [default: as trained]")
@count_option("--mem-len", None, "Cached states of earlier tokens.  [default: as trained]", 0)
@click.option(
    "--attention-lengths",
    type=LENGTHS,
    default=(),
    help="Numbers of keys that each query sees, itself included; one pass for each.",
)
@count_option("--clamp-len", None, "Clamps relative distances at this value.", 0)
@count_option("--sinks", None, "Keeps this many of the first keys in sight, among all.", 0)
@click.option(
    "--rope-scaling",
    type=click.Choice(get_args(RopeKind)),
    help="Scales rotary positions (encoding rope) by keys seen over keys met in training.",
)
@click.option(
    "--same-length/--no-same-length",
    default=None,
    help="Lets every query see exactly mem_len keys, itself included.",
)
@click.option(
    "--exact",
    is_flag=True,
    help="Warms each stream up, so that the loss is the same at every batch size.",
)
@click.option(
    "--zero-memory",
    is_flag=True,
    help="Starts from zero-filled memory (official TensorFlow code, Hugging Face).",
)
@click.option(
    "--losses",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Writes the loss of each token to this file.",
)
@click.option(
    "--protocol",
    "protocols",
    metavar="A,B,...",
    help="Perplexities as other programs print them: ours, stride:N, lm-eval, llama.cpp, hf-guide.",
)
@count_option(
    "--window",
    None,
    "Tokens that a --protocol reads at once.  [default: the model's, llama.cpp's 512]",
    2,
)
@device_option
@precision_option
@checkpoint_option
@format_option
def evaluate(format_: str, protocols: str | None, window: int | None, **options: Any) -> None:
    """Measure the loss of MODEL on a split of a corpus, or on token ids.

    MODEL is a run directory, EXPERIMENT/LABEL or EXPERIMENT/RUN-ID under results/, runs:/ID of
    MLflow, or weights of another program: hf:DIR, hf:NAME, gguf:FILE, torch:FILE, tf:PREFIX, or a
    name of `txlbench models list`.

    Without options a row is measured as the result table measures it: in the regime of training,
    and with --attention-lengths as in its sweep. A text of your own is read at the model's level,
    with the model's vocabulary, as a whole. Streams begin without memory, which the output counts
    as cold starts. A row with several seeds gives the loss of each, the mean and its interval.
    """
    from txlbench.commands.evaluate import EvalRequest, seed_means
    from txlbench.commands.evaluate import evaluate as run_evaluation

    request = EvalRequest(**options)
    if protocols is not None:
        _show_protocols(request, tuple(dict.fromkeys(protocols.split(","))), window, format_)
        return
    if window is not None:
        raise UserError(f"--window {window}: is of --protocol", "drop it, or give --tgt-len")
    results = run_evaluation(request)
    warnings = [warning for one in results for warning in (one.suspicion, one.text.warning)]
    for warning in dict.fromkeys(filter(None, warnings)):
        click.echo(f"Warning: {warning}", err=True)
    if format_ == "json":
        records = [_plain(result) for result in results] + [_mean(m) for m in seed_means(results)]
        click.echo(json.dumps(records, indent=2))
        return
    several = len({result.model for result in results}) > 1
    for result in results:
        click.echo(f"{result.model}: {_sentence(result)}" if several else _sentence(result))
    for mean in seed_means(results):
        click.echo(_mean_sentence(mean))


def _show_protocols(
    request: "EvalRequest", protocols: tuple[str, ...], window: int | None, format_: str
) -> None:
    """Prints what each program would, and how it gets there."""
    from txlbench.commands.perplexity import perplexities

    results = perplexities(request, protocols, window)
    if format_ == "json":
        click.echo(json.dumps([vars(result) for result in results], indent=2))
        return
    several = len({result.model for result in results}) > 1
    for result in results:
        numbers = ", ".join(f"{name} {value:,.4f}" for name, value in result.numbers.items())
        name = f"{result.model}: {result.protocol}" if several else result.protocol
        context = ""
        if result.mean_context is not None:
            context = f"; {result.mean_context:,.1f} tokens of context on average"
        click.echo(
            f"{name}: {numbers} ({result.tokens:,} tokens of {result.split} of {result.corpus})\n"
            f"    {result.how}{context}"
        )


def _plain(result: "EvalResult") -> dict[str, object]:
    scored, text = result.score, result.text
    return {
        "loss": scored.loss,
        **{unit: displayed(scored.loss, unit) for unit in text.units},
        "model": result.model,
        "corpus": text.name,
        "corpus_checksum": text.checksum,
        "unknown": text.unknown,
        "tokens": scored.tokens,
        "dropped": scored.dropped,
        "cold_starts": scored.cold_starts,
        "dtype": scored.dtype,
        "attention": scored.attention,
        "measurement": result.measurement.model_dump(mode="json"),
    }


def _mean(mean: "SeedMean") -> dict[str, object]:
    return {
        "seeds": mean.estimate.n,
        f"mean_{mean.unit}": mean.estimate.mean,
        "half_width": mean.estimate.half_width,
        "measurement": mean.measurement.model_dump(mode="json"),
    }


def _mean_sentence(mean: "SeedMean") -> str:
    found, length = mean.estimate, mean.measurement.attention_length
    interval = "" if found.half_width is None else f" ± {shown(found.half_width, mean.unit)}"
    at = f", attention length {length}" if length else ""
    return (
        f"mean of {found.n} seeds{at}: {shown(found.mean, mean.unit)}{interval} {mean.unit} "
        "(95 % t-interval)"
    )


def _sentence(result: "EvalResult") -> str:
    """One line: the numbers, then how they were obtained."""
    scored, how, text = result.score, result.measurement, result.text
    numbers = ", ".join(f"{shown(displayed(scored.loss, u), u)} {u}" for u in text.units)
    settings = [f"{how.regime}, tgt_len {how.tgt_len}, mem_len {how.mem_len}"]
    if how.attention_length:
        settings.insert(0, f"attention length {how.attention_length}")
    if how.regime == "windows":
        settings.append(f"stride {how.stride}")
    if how.same_length and not how.attention_length:
        settings.append("same_length")
    if how.clamp_len is not None:
        settings.append(f"clamp_len {how.clamp_len}")
    if how.sinks:
        settings.append(f"{how.sinks} sinks among the keys")
    if how.rope is not None:
        settings.append(f"{how.rope.kind} scaling by {how.rope.factor:.4g}")
    settings.append("exact" if how.exact else f"{scored.cold_starts} cold starts")
    unknown = f", {text.unknown / len(text.ids):.1%} of the text <unk>" if text.unknown else ""
    return (
        f"{numbers} ({scored.loss:.6f} nats) on {scored.tokens:,} tokens of {text.place}, "
        f"{scored.dropped} dropped{unknown}: {', '.join(settings)}, batch {how.batch_size}, "
        f"{scored.dtype}"
    )


@verb(
    "import",
    "txlbench import hf:exported --out results/imported/again",
    "txlbench import torch:model.pt --out results/imported/official",
)
@click.argument("source")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    required=True,
    help="Run directory to create, such as results/imported/NAME.",
)
@click.option(
    "--reversed-clusters",
    is_flag=True,
    help="Takes the tail clusters of hf:DIR to be in the order of the official PyTorch code.",
)
@force_option
def import_(source: str, out: Path, reversed_clusters: bool, force: bool) -> None:
    """Convert weights of another program to a run directory.

    SOURCE is hf:DIR, a Hugging Face Transformer-XL folder; torch:FILE, a model file of the official
    PyTorch code or a state dict; or tf:PREFIX, an official TensorFlow checkpoint. No code in these
    files is executed.
    """
    from txlbench.commands.load_model import import_model
    from txlbench.config.counting import parameters

    run, converted = import_model(source, out, reversed_clusters, force)
    count, symbols = (
        parameters(converted.config, converted.vocabulary_size),
        converted.vocabulary_size,
    )
    click.echo(f"{run.path}: {count:,} parameters, {symbols:,} symbols")
    for note in converted.notes:
        click.echo(f"note: {note}", err=True)


@verb(
    "export",
    "txlbench export quick/Transformer-XL --to hf:exported",
    "txlbench export quick/Transformer-XL --to hf:exported --force",
)
@click.argument("model")
@click.option(
    "--to", "target", metavar="hf:DIR", required=True, help="Hugging Face folder to create."
)
@force_option
def export(model: str, target: str, force: bool) -> None:
    """Write the weights of MODEL as a Hugging Face Transformer-XL folder."""
    from txlbench.commands.load_model import export_model
    from txlbench.commands.model_ref import resolve

    click.echo(export_model(resolve(model), target, force))
