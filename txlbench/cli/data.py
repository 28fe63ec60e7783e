"""`txlbench data`: lists, prepares and shows corpora, and exports their token ids."""

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from txlbench.cli.options import VerbGroup, corpus_level_option, verb
from txlbench.config.base import Split, displayed
from txlbench.config.catalogue import CORPORA, UNITS, Level
from txlbench.config.run_config import CorpusConfig, corpus_named
from txlbench.errors import UserError
from txlbench.files import write_atomically

if TYPE_CHECKING:
    from txlbench.data.corpus import Corpus

NUMPY_MAGIC = b"\x93NUMPY"


@click.group(
    cls=VerbGroup,
    examples=("txlbench data list", "txlbench data show my-text.txt --level char"),
)
def data() -> None:
    """List, prepare, show and export corpora.

    NAME is a corpus of `txlbench data list`, or the path of a text file, whose first 90 % become
    the train split and whose last two 5 % valid and test. Corpora are kept under $TXLBENCH_DATA,
    else in the user's cache directory.
    """


@verb("list", "txlbench data list", group=data)
def list_corpora() -> None:
    """List the named corpora with their level, symbols and tokens."""
    from txlbench.data.prepare import find_prepared

    for name, facts in CORPORA.items():
        corpus = find_prepared(CorpusConfig(name=name))
        symbols = len(corpus.vocabulary) if corpus else facts.vocabulary_size
        tokens = corpus.tokens["train"] if corpus else facts.train_tokens
        state = "prepared" if corpus else "not prepared yet"
        click.echo(
            f"{name:<16} {facts.level:<5} {_number(symbols):>9} symbols "
            f"{_number(tokens):>12} tokens in train  {state}"
        )


@verb(
    "prepare",
    "txlbench data prepare enwiki-sample",
    "txlbench data prepare my-text.txt --level word",
    "txlbench data prepare wt103 --from-file wikitext-103-v1.zip",
    group=data,
)
@click.argument("name")
@click.option(
    "--from-file",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Uses this copy of the archive, or of its folder, instead of downloading it.",
)
@corpus_level_option
def prepare(name: str, from_file: Path | None, level: Level | None) -> None:
    """Download and prepare a corpus unless it is prepared already, and print where it is."""
    corpus = _prepare(name, level, from_file)
    tokens = sum(corpus.tokens.values())
    click.echo(f"{corpus.name}: {tokens:,} tokens at {corpus.level} level in {corpus.directory}")


@verb("show", "txlbench data show enwiki-sample", "txlbench data show my-text.txt", group=data)
@click.argument("name")
@corpus_level_option
def show(name: str, level: Level | None) -> None:
    """Show tokens, vocabulary, unigram loss, checksum and directory of a corpus."""
    corpus = _prepare(name, level)
    unit = UNITS[corpus.level]
    unigram = {split: displayed(loss, unit) for split, loss in corpus.unigram.items()}
    for key, value in {
        "name": corpus.name,
        "level": corpus.level,
        "split rule": corpus.split_rule,
        "tokens": _by_split({split: f"{count:,}" for split, count in corpus.tokens.items()}),
        "vocabulary": f"{len(corpus.vocabulary):,} symbols",
        "unknown": _by_split({split: f"{count:,}" for split, count in corpus.unknown.items()}),
        "<unk>": _by_split({split: f"{share:.2%}" for split, share in corpus.unk_share.items()})
        or "none",
        f"unigram {unit}": _by_split({s: f"{value:,.3f}" for s, value in unigram.items()}),
        "checksum": corpus.checksum,
        "directory": corpus.directory,
    }.items():
        click.echo(f"{key:<12} {value}")
    if name in CORPORA:
        click.echo(f"{'note':<12} {CORPORA[name].note}")


@verb(
    "export",
    "txlbench data export enwiki-sample --split test --out ids.npy",
    "txlbench data export my-text.txt --level char --out ids.npy",
    group=data,
)
@click.argument("name")
@click.option(
    "--split",
    type=click.Choice(get_args(Split)),
    default="test",
    show_default=True,
    help="Split to write.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE.npy",
    required=True,
    help="File to write; an existing array is replaced, any other file is not.",
)
@corpus_level_option
def export(name: str, split: Split, out: Path, level: Level | None) -> None:
    """Write the token ids of a split as a one-dimensional NumPy array."""
    import numpy as np

    corpus = _prepare(name, level)
    _refuse_foreign(out)
    ids = corpus.ids(split)
    try:
        write_atomically(out, lambda file: np.save(file, ids, allow_pickle=False))
    except OSError as error:
        raise UserError(f"{out}: {error.strerror}", "choose another place for --out") from error
    click.echo(f"{out}: {len(ids):,} token ids ({ids.dtype.name}) of {corpus.name} {split}")


def _prepare(name: str, level: Level | None, from_file: Path | None = None) -> "Corpus":
    """The prepared corpus that the command line names; its warnings go to stderr."""
    from txlbench.data import prepare

    corpus = prepare.prepare(corpus_named(name, level), from_file)
    for warning in corpus.warnings:
        click.echo(f"warning: {corpus.name}: {warning}", err=True)
    return corpus


def _refuse_foreign(out: Path) -> None:
    """Arrays are overwritten, anything else is not: it may be the user's text."""
    if out.is_dir():
        raise UserError(f"{out}: a directory", "give the name of a file")
    if out.exists():
        with out.open("rb") as file:
            if file.read(len(NUMPY_MAGIC)) != NUMPY_MAGIC:
                raise UserError(f"{out}: exists and is not an array", "choose another name")


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _by_split(values: dict[Split, str]) -> str:
    return "  ".join(f"{split} {value}" for split, value in values.items())
