"""Which parameters and numbers of a finding MLflow shows, by the name of its file."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

FORBIDDEN = re.compile(r"[^\w\-. /]")
"""What MLflow takes in no name of a metric."""


class Value(NamedTuple):
    """A number of a finding; the step is a context where there is one."""

    name: str
    value: float
    step: int = 0


def parameters_of_finding(content: Mapping[str, Any]) -> dict[str, str]:
    """The plain values at the top of the file, and which models there are."""
    plain = {
        key: str(value)[:500]
        for key, value in content.items()
        if isinstance(value, str | int | float) or key in ("contexts", "r", "machine")
    }
    models = content.get("models")
    return {**plain, "models": ", ".join(models)[:500]} if models else plain


def values_of_finding(kind: str, content: Mapping[str, Any]) -> Iterator[Value]:
    """The numbers of a finding whose file is `kind`.json, losses in nats."""
    for value in KINDS[kind](content):
        yield value._replace(name=FORBIDDEN.sub("_", value.name))


def _recl(content: Mapping[str, Any]) -> Iterator[Value]:
    for number, group in enumerate(content["groups"]):
        prefix = f"group {number + 1}/" if len(content["groups"]) > 1 else ""
        for line in group["results"]:
            of = f"{line['model']} r{line['r']}"
            yield Value(f"{prefix}recl/{of}", line["recl"])
            yield Value(f"{prefix}recl_above_null/{of}", line["recl_above_null"])
        for model, losses in group["losses"].items():
            for context, loss in zip(content["contexts"], losses, strict=True):
                yield Value(f"{prefix}loss/{model}", loss, context)


def _truth(content: Mapping[str, Any]) -> Iterator[Value]:
    for row in content["rows"]:
        label = row["label"]
        yield Value(f"streaming/{label}", row["streaming"]["loss"])
        yield Value(f"streaming_known/{label}", row["streaming"]["optimum"])
        for line in row["recl"]:
            yield Value(f"recl_above_null/{label} r{line['r']}", line["recl_above_null"])
            yield Value(f"recl_true/{label} r{line['r']}", line["true"])
        losses = zip(content["contexts"], row["losses"], row["known"], strict=True)
        for context, loss, known in losses:
            yield Value(f"loss/{label}", loss, context)
            yield Value(f"known/{label}", known, context)


def _bench(content: Mapping[str, Any]) -> Iterator[Value]:
    for result in content["results"]:
        name = f"{result['work']} {result['size']} {result['dtype']} M{result['mem_len']}"
        yield Value(f"tokens_per_second/{name}", result["tokens_per_second"]["median"])
        yield Value(f"peak_memory_bytes/{name}", result["peak_memory_bytes"])


def _speed(content: Mapping[str, Any]) -> Iterator[Value]:
    """The step is the attention length."""
    for line in content["results"]:
        segment = f" L{line['tgt_len']}" if line["tgt_len"] else ""
        name = f"{line['model']} {line['regime']}{segment}"
        length = line["attention_length"]
        yield Value(f"seconds_per_token/{name}", line["seconds_per_token"]["median"], length)
        yield Value(f"speedup/{name}", line["speedup"]["median"], length)


KINDS = {"recl": _recl, "truth": _truth, "bench": _bench, "speed": _speed}
