"""Everything that is said of one group, as `recl.json` holds it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.recl.blocks import blocks_of
from txlbench.evaluation.recl.bootstrap import bootstrap, interval_of, shares_of
from txlbench.evaluation.recl.ecl import effective_context_length
from txlbench.evaluation.recl.group import Group, Terms
from txlbench.evaluation.recl.measures import Measures, measure
from txlbench.evaluation.recl.null import draw_signs
from txlbench.evaluation.recl.ranking import count_of
from txlbench.evaluation.recl.sensitivity import sensitivity
from txlbench.evaluation.recl.subgroups import subgroups
from txlbench.evaluation.recl.walk import limited

FEW = 500
"""Hardest tokens under which a RECL is worth a warning."""


def group_report(group: Group, terms: Terms) -> dict[str, Any]:
    """The entry of `group` under "groups".

    Raises:
        UserError: with fewer than two contexts, or too few tokens for the test against noise.
    """
    blocks = blocks_of(group.positions)
    random = np.random.default_rng(terms.seed)
    signs = draw_signs(random, blocks.count)
    measures = measure(group.losses, terms.shares, blocks, signs)
    steps = bootstrap(group.losses, terms.shares, terms.threshold, blocks, random)
    return {
        "models": list(group.names),
        "longest": list(group.longest),
        "tokens": len(group.positions),
        "blocks": {"count": blocks.count, "positions": blocks.length},
        "losses": dict(zip(group.names, group.losses.mean(axis=2).tolist(), strict=True)),
        "baselines": [
            {"r": r, "perplexity": line.tolist()}
            for r, line in zip(terms.shares, measures.gains.baseline, strict=True)
        ],
        "warnings": warnings(group, terms),
        "results": _results(group, terms, measures, steps),
        "subgroups": subgroups(group, terms),
        "sensitivity": sensitivity(group, terms, measures, blocks, signs),
        "ecl": _ecl(group, terms),
    }


def warnings(group: Group, terms: Terms) -> list[str]:
    """What should keep a reader from believing too much."""
    tokens = len(group.positions)
    few = [(r, count_of(r, tokens)) for r in terms.shares if count_of(r, tokens) < FEW]
    found = [
        f"r = {r:g} is {count:,} of {tokens:,} tokens, fewer than {FEW}: the RECL is uncertain"
        for r, count in few
    ]
    for name, losses in zip(group.names, group.losses, strict=True):
        if losses.min() < 0:
            found.append(f"{name} has losses below 0, which -log P in nats never is")
        means = losses.mean(axis=1)
        best, excess = int(means.argmin()), float(np.expm1(means[-1] - means.min()))
        if excess >= terms.threshold:
            found.append(
                f"{name} is best at a context of {group.contexts[best]}; at {group.contexts[-1]} "
                f"its perplexity is {100 * excess:.1f} % higher, as beyond what it was trained on"
            )
    return found


def _results(
    group: Group, terms: Terms, measures: Measures, steps: NDArray[np.intp]
) -> list[dict[str, Any]]:
    counts = measures.counts(terms.threshold)
    above_null = measures.counts_above_null(terms.threshold)
    lines = []
    for model, name in enumerate(group.names):
        for share, r in enumerate(terms.shares):
            here = (model, share)
            end = group.walk(model, counts[here])
            lines.append(
                {
                    "model": name,
                    "r": r,
                    "recl": end.length,
                    "capped": end.capped,
                    "limited_by": end.limited_by,
                    "gains": measures.gains.relative[here].tolist(),
                    "differences": measures.gains.differences[here].tolist(),
                    "net_gains": measures.net_gains[here].tolist(),
                    "p": measures.p[here].tolist(),
                    "recl_above_null": group.walk(model, above_null[here]).length,
                    **_spread(group, model, steps[:, model, share]),
                }
            )
    return lines


def _spread(group: Group, model: int, steps: NDArray[np.intp]) -> dict[str, Any]:
    """Intervals and shares of both RECLs over resamples; `steps` is [2, N]."""
    paper, above = (
        [limited(group.contexts[taken], group.longest[model]) for taken in line] for line in steps
    )
    return {
        "interval": interval_of(paper),
        "shares": shares_of(paper),
        "interval_above_null": interval_of(above),
        "shares_above_null": shares_of(above),
    }


def _ecl(group: Group, terms: Terms) -> dict[str, int]:
    found = {}
    for model, name in enumerate(group.names):
        length = effective_context_length(group.losses[model], group.contexts, terms.threshold)
        found[name] = limited(length, group.longest[model])
    return found
