"""A commented experiment file to start from, whose comments are those of `schema`."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from txlbench.config.base import DocumentedKey
from txlbench.config.catalogue import Level
from txlbench.config.grid import NAME, NAME_RULE, documented_keys, expand
from txlbench.config.loading import dump_yaml, parse_yaml
from txlbench.config.run_config import CorpusConfig
from txlbench.errors import UserError
from txlbench.files import write_text

SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "model": {"encoding": "xl", "n_layer": 4, "d_model": 128, "n_head": 4, "dropout": 0.1},
    "train": {
        **{"tgt_len": 32, "mem_len": 32, "batch_size": 32, "max_step": 1000, "lr": 0.002},
        **{"warmup_step": 50, "log_interval": 20, "eval_interval": 200, "eval_tokens": 10000},
    },
    "evaluate": {"attention_lengths": [16, 32, 64], "tokens": 10000},
}
"""What all rows share: a model that one core trains in minutes."""
WIDTH = 100
HEAD = """\
# {name}: the question that this experiment answers, in a line.
#
# What would be trained, and how long it takes:
#   txlbench ablate {file} --dry-run
# Train and measure; the same command goes on where it was stopped:
#   txlbench ablate {file}
# Every key with type, default, meaning and source:
#   txlbench schema

name: {name}
description: With memory, without, and with Shaw's encoding

# A corpus of `txlbench data list`, or a text of your own: {{path: my-text.txt, level: word}}.
corpus: {corpus}

# The base: what all rows share. A key that is left out has its default."""
TAIL = """
# Each row is trained once with each seed; several give intervals.
seeds: [1, 2]

# Every combination of these values is a row.
grid:
  train.recurrence: [true, false]

# Combinations of the grid that are to be left out:
# exclude:
#   - {train.recurrence: false}

# Rows of their own, each with a label and what it sets over the base. `paper` and `note` stand in
# the table beside it.
rows:
  - label: Shaw's encoding
    set: {model.encoding: shaw}
    # paper: {ppl_init: 27.94}
    # note: what a reader should know of the row
"""


def new_experiment(
    name: str, corpus: str = "enwiki-sample", level: Level | None = None, force: bool = False
) -> Path:
    """Writes NAME.yaml, a file that trains as it stands; returns its path.

    Args:
        name: of the experiment, or the path that its file is to have.
        corpus: of the catalogue, or the path of a text.
        level: what a token of a text of one's own is.
        force: a file that an earlier call wrote is replaced.

    Raises:
        UserError: for a name or corpus that cannot be, or a file that exists.
    """
    is_path = name.endswith((".yaml", ".yml"))
    stem = Path(name).stem if is_path else name
    if not re.fullmatch(NAME, stem):
        raise UserError(f"name: {stem!r} found", NAME_RULE)
    path = Path(name if is_path else f"{name}.yaml")
    text = experiment_text(path, corpus, level)
    _check_text(expand(parse_yaml(text, str(path))).lines[0].configs[0].corpus)
    if path.exists() and not force:
        raise UserError(f"{path}: exists", "choose another name, or replace it with --force")
    if path.exists() and not _is_own(path):
        raise UserError(
            f"{path}: does not begin as a file of `txlbench new` does",
            "choose another name, or delete it",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def _check_text(corpus: CorpusConfig) -> None:
    """Refuses (UserError) a text that is empty; one that is not there may still come."""
    from txlbench.data.download import check_not_empty  # only for a text of one's own: 20 ms

    if corpus.path is not None and Path(corpus.path).expanduser().exists():
        check_not_empty(corpus)


def _is_own(path: Path) -> bool:
    """Whether a call of this verb wrote the file, by its first line."""
    first = HEAD.partition("\n")[0].format(name=path.stem)
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline().rstrip("\n") == first


def experiment_text(path: Path, corpus: str, level: Level | None) -> str:
    """The file that `new_experiment` writes to `path`."""
    keys = {each.name: each for each in documented_keys()}
    value = corpus if level is None else {"name": corpus, "level": level}
    head = HEAD.format(name=path.stem, file=path, corpus=_written(value))
    return "\n".join([head, *_sections(keys), TAIL])


def _sections(keys: Mapping[str, DocumentedKey]) -> Iterator[str]:
    for section, settings in SECTIONS.items():
        yield f"{section}:"
        lines = {key: f"  {key}: {_written(value)}" for key, value in settings.items()}
        column = max(map(len, lines.values())) + 2
        for key, line in lines.items():
            meaning = re.split(r"[;.]", keys[f"{section}.{key}"].meaning)[0]
            commented = f"{line:{column}}# {meaning}"
            if len(commented) > WIDTH:
                above = textwrap.fill(
                    meaning, WIDTH, initial_indent="  # ", subsequent_indent="  # "
                )
                commented = f"{above}\n{line}"
            yield commented


def _written(value: Any) -> str:
    """A value in one line of YAML."""
    return dump_yaml([value], in_a_line=True).strip()[1:-1]
