"""Records as `probe` writes them, made by hand."""

from pathlib import Path

import numpy as np

from txlbench.evaluation.context.far_context import FarLosses, evictions, far_contexts
from txlbench.evaluation.context.forgetting import Recall, forgetting_curve
from txlbench.evaluation.context.resampling import interval
from txlbench.files import write_json
from txlbench.records.context_schema import Missing
from txlbench.records.finding_schema import ReclSource
from txlbench.records.probe_schema import ProbeRecord, ProbeResult

COMMAND = "txlbench probe --models a/XL,a/LSTM"
CONTEXTS, CHANGES, LENGTHS = (16, 64, 256), ("shuffle", "reverse"), (8, 16, 32)


def result(model, seed, reach, sinks=True):
    """A model that recalls texts up to `reach`."""
    random = np.random.default_rng(seed)

    def losses(level):
        return level + np.abs(random.standard_normal(200))

    near = CONTEXTS[:-1]
    one = FarLosses(
        losses(1.0),
        {k: losses(2.0) for k in near},
        {(k, name): losses(1.5) for k in near for name in CHANGES},
        {k: losses(1.8) for k in near},
        {k: losses(1.4) for k in near} if sinks else {},
    )
    resampling = one.resampling(1000 + 16 * np.arange(200), 0)
    hits = {n: random.random((2, 20)) / 10 + [[0.9 * (n <= reach)], [0.0]] for n in LENGTHS}
    curve = forgetting_curve({n: Recall(np.ceil(h - 0.5), 3 - h) for n, h in hits.items()}, 0)
    why = "they are of pretrained models"
    return ProbeResult(
        model=model,
        context=256,
        tokens=200,
        blocks=resampling.blocks,
        full=interval(resampling.means(one.full)),
        far=tuple(far_contexts(one, resampling)),
        evictions=tuple(evictions(one, resampling)),
        forgetting=curve,
        missing=() if sinks else (Missing(measure="sinks", reason=why),),
    )


def record(**changes):
    source = ReclSource(
        reference="a/XL", path=None, corpus=None, split="test", vocabulary=None, model=None,
        longest=None, settings={},
    )  # fmt: skip
    made = ProbeRecord(
        schema=ProbeRecord.SCHEMA,
        commit="abc",
        command=COMMAND,
        contexts=CONTEXTS,
        changes=CHANGES,
        lengths=LENGTHS,
        sinks=4,
        seed=0,
        models={"XL": source, "LSTM": source.model_copy(update={"reference": "a/LSTM"})},
        results=(result("XL", 1, 16), result("LSTM", 2, 4, sinks=False)),
    )
    return made.model_copy(update=changes)


def write_record(folder):
    write_json(folder / "probe.json", record().content)
    return Path(folder)
