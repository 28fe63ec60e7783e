"""`probe`: what models do with changed far context, with repeated texts and with a short cache."""

from dataclasses import replace

from txlbench.commands.model_ref import ModelRef, resolve_seeds
from txlbench.commands.names import short_titles
from txlbench.commands.probe_pass import ModelProbes
from txlbench.commands.probe_request import CONTEXTS, TOKENS, ProbeRequest, ProbeWatch
from txlbench.commands.publish import PublishedFinding, publish
from txlbench.commands.recl import identity, is_loss_file
from txlbench.commands.recl_request import Progress
from txlbench.commands.stored_losses import silent
from txlbench.commands.texts import read_text
from txlbench.errors import UserError
from txlbench.machine import current_commit
from txlbench.records.experiment_directory import RESULTS
from txlbench.records.probe_schema import ProbeRecord
from txlbench.reporting.figures.style import Look


def run_probe(
    request: ProbeRequest, progress: Progress = silent, look: Look | None = None
) -> PublishedFinding:
    """Probes every model and writes probe.json, tables, figures and a page."""
    directory = request.out or RESULTS / f"probe-{identity(request)}"
    return publish(directory / "probe.json", lambda: measure_probes(request, progress), look)


def measure_probes(request: ProbeRequest, progress: Progress = silent) -> ProbeRecord:
    """Probes every model, each on its own tokens. Writes nothing but losses.

    Raises:
        UserError: if there is no such model, it does not fit the text, or nothing is to be had.
    """
    asked = replace(request, contexts=request.contexts or CONTEXTS)
    names = dict.fromkeys(name for group in asked.groups for name in group)
    if files := [name for name in names if is_loss_file(name)]:
        raise UserError(f"{files[0]}: is a loss file, and probes read the model", "name the model")
    refs = {ref.reference: ref for name in names for ref in resolve_seeds(name, asked.checkpoint)}
    texts = [read_text(ref, asked.corpus, asked.level, asked.split) for ref in refs.values()]
    watch = ProbeWatch(progress, sum(_most_windows(asked, ref) for ref in refs.values()))
    passes = [
        ModelProbes(ref, text, asked, watch) for ref, text in zip(refs.values(), texts, strict=True)
    ]
    titles = short_titles(list(refs))
    results = tuple(each.result(title) for title, each in zip(titles, passes, strict=True))
    if all(each.is_empty for each in results):
        first = results[0].missing[0]
        raise UserError(f"{first.measure}: {first.reason}", "give a longer text, or shorter ones")
    return ProbeRecord(
        schema=ProbeRecord.SCHEMA,
        contexts=asked.contexts or CONTEXTS,
        changes=asked.changes,
        lengths=asked.lengths,
        sinks=asked.kept_sinks,
        seed=asked.seed,
        commit=current_commit(),
        command=asked.command,
        models={title: each.source for title, each in zip(titles, passes, strict=True)},
        results=results,
    )


def _most_windows(request: ProbeRequest, ref: ModelRef) -> int:
    """Windows that are read of a model which allows every probe."""
    nearest, tokens = len(request.nearest), request.tokens or TOKENS
    passes = {
        "far": nearest * (1 + len(request.changes)) * tokens,
        "cache": nearest * (1 + (ref.pretrained is not None)) * tokens,
        "forgetting": 2 * request.texts * len(request.lengths),
    }
    whole = tokens * bool({"far", "cache"} & {*request.probes})
    return whole + sum(passes[each] for each in dict.fromkeys(request.probes))
