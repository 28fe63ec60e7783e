"""The identity of a run: a readable slug and a hash of what decides the weights."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from txlbench.config.base import Section
from txlbench.config.run_config import RunConfig


def hashed_fields(section: Section) -> dict[str, Any]:
    """The fields of `section` that count for its identity, as plain data."""
    fields = section.model_dump(mode="json")
    return {
        name: value
        for name, value in fields.items()
        if name not in section.UNHASHED
        and not (name in section.ADDED and section.ADDED[name] == value)
    }


def fingerprint(value: Any, length: int = 8) -> str:
    """The first `length` hexadecimal digits of the SHA-256 of `value` as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def run_id(config: RunConfig) -> str:
    """`<encoding or kind>-<rec|norec>-<loss>-s<seed>-<hash>`, the name of the run's directory.

    The hash covers corpus name, level and split rule, model, training and seed as resolved. It
    does not cover evaluation, paths, device, workers or logging: same identity, same run.
    """
    corpus = {
        **hashed_fields(config.corpus),
        "level": config.corpus.resolved_level,
        "split_rule": config.corpus.split_rule,
    }
    digest = fingerprint(
        {
            "corpus": corpus,
            "model": hashed_fields(config.model),
            "train": hashed_fields(config.train),
            "seed": config.seed,
        }
    )
    recurrence = "rec" if config.train.recurrence else "norec"
    return f"{config.model.name}-{recurrence}-{config.train.loss}-s{config.seed}-{digest}"


def decisive_settings(config: RunConfig) -> dict[str, object]:
    """What decides the weights, by dotted key: `{"train.lr": 0.002, "seed": 1, ...}`."""
    sections = {"corpus": config.corpus, "model": config.model, "train": config.train}
    return {
        **{
            f"{section}.{name}": value
            for section, values in sections.items()
            for name, value in values.model_dump(mode="json").items()
            if name not in values.UNHASHED
        },
        "corpus.level": config.corpus.resolved_level,
        "seed": config.seed,
    }


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """What differs among the keys that both have: `train.lr was 0.002 and is 0.003`."""
    return [
        f"{key} was {old[key]} and is {value}"
        for key, value in new.items()
        if key in old and old[key] != value
    ]
