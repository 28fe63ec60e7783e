"""The functions for notebooks: what the verbs do, called from Python, with tables as DataFrames.

`import txlbench` offers them without loading PyTorch; each loads what it needs when it is called.
A MODEL is named as on the command line, `"quick/Transformer-XL"` for example. Settings have the
names of the verbs' options. Wrong input raises `txlbench.UserError`, whose text is one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txlbench.errors import UserError
from txlbench.machine import set_threads
from txlbench.records.experiment_directory import ExperimentDirectory, under_results

if TYPE_CHECKING:
    import pandas as pd

    from txlbench.commands.model_ref import LoadedModel

__all__ = [
    "ablate",
    "attention",
    "context",
    "context_losses",
    "evaluate",
    "load",
    "plugin",
    "probe",
    "recl",
    "results",
]

set_threads()  # effective where PyTorch has not been imported yet


def load(model: str, *, device: str = "auto", checkpoint: str = "best") -> LoadedModel:
    """Loads a model: `.model` is the PyTorch module in evaluation mode, `.ref` what is known of it.

    Args:
        checkpoint: best or last, of a run.
    """
    from txlbench.commands.model_ref import resolve
    from txlbench.machine import own_device

    return resolve(model, checkpoint).load(own_device(device))


def plugin(path: str | Path) -> None:
    """Executes a Python file that registers encodings, kinds of model or corpora, as `--plugin`."""
    from txlbench.config.plugins import load_files

    load_files([Path(path)])


def evaluate(model: str, **settings: Any) -> pd.DataFrame:
    """Measures a model as `txlbench eval` does.

    Args:
        settings: fields of `txlbench.commands.evaluate.EvalRequest`, such as corpus, split, or
            attention_lengths=(16, 32).

    Returns:
        A line for each pass, and for each seed of a row: the loss in nats and in the corpus's
        unit, tokens scored, and the measurement.
    """
    import pandas as pd

    from txlbench.commands.evaluate import EvalRequest
    from txlbench.commands.evaluate import evaluate as run
    from txlbench.config.base import displayed

    return pd.DataFrame(
        {
            "model": result.model,
            "loss": result.score.loss,
            **{unit: displayed(result.score.loss, unit) for unit in result.text.units},
            "tokens": result.score.tokens,
            "dropped": result.score.dropped,
            "cold_starts": result.score.cold_starts,
            "unknown": result.text.unknown,
            **result.measurement.model_dump(mode="json"),
            "suspicion": result.suspicion,
        }
        for result in run(EvalRequest(model, **settings))
    )


def context_losses(model: str, contexts: Sequence[int], **settings: Any) -> pd.DataFrame:
    """The losses of single tokens, each given exactly so many predecessors.

    Args:
        contexts: numbers of predecessors, ascending.
        settings: fields of `txlbench.commands.recl_request.ReclRequest`, such as tokens=2000.

    Returns:
        Losses in nats: a row for each token, by its position in the split; a column for each
        context. They are kept, so that a second call reads them.
    """
    import pandas as pd

    from txlbench.commands.recl_request import ReclRequest
    from txlbench.commands.stored_losses import context_losses_of

    request = ReclRequest(((model,),), tuple(contexts), **settings)
    file = context_losses_of(model, request).losses
    index = pd.Index(file.positions, name="position")
    return pd.DataFrame(file.losses.T, index=index, columns=pd.Index(file.contexts, name="context"))


def recl(*models: str, **settings: Any) -> pd.DataFrame:
    """The relative effective context length of a group of models, or loss files.

    Args:
        settings: fields of `txlbench.commands.recl_request.ReclRequest`, such as contexts,
            tokens, shares and threshold.

    Returns:
        A line for each model and share r: the paper's RECL, RECL above the null, intervals, ECL.
        Nothing is written but the losses, which are kept.
    """
    import pandas as pd

    from txlbench.commands.recl import measure_recl
    from txlbench.commands.recl_request import ReclRequest
    from txlbench.reporting.recl import recl_lines

    request = ReclRequest((models,), **settings)
    return pd.DataFrame(map(dict, recl_lines(measure_recl(request))))


def context(*models: str, **settings: Any) -> pd.DataFrame:
    """Every measure of context of a group of models, or loss files.

    Args:
        settings: fields of `txlbench.commands.context.ContextRequest`, such as contexts, tokens
            and dense.

    Returns:
        A line for each measure, model and place where it was taken, with its value and its 95 %
        interval; losses in nats. Nothing is written but the losses, which are kept.
    """
    import pandas as pd

    from txlbench.commands.context import ContextRequest, measure_context
    from txlbench.reporting.context import context_lines

    request = ContextRequest((models,), **settings)
    return pd.DataFrame(map(dict, context_lines(measure_context(request))))


def probe(*models: str, **settings: Any) -> pd.DataFrame:
    """Probes of models: changed far context, recall of texts, caches cut short.

    Args:
        settings: fields of `txlbench.commands.probe_request.ProbeRequest`, such as contexts,
            tokens, changes and lengths.

    Returns:
        A line for each model, measure and place where it was taken, with its value and its 95 %
        interval; losses in nats. Nothing is written but the losses, which are kept.
    """
    import pandas as pd

    from txlbench.commands.probe_request import ProbeRequest
    from txlbench.commands.probes import measure_probes
    from txlbench.reporting.probes import probe_lines

    request = ProbeRequest((models,), **settings)
    return pd.DataFrame(map(dict, probe_lines(measure_probes(request))))


def attention(model: str, **settings: Any) -> pd.DataFrame:
    """Where the heads of a model attend, and the scale of each term of their scores.

    Args:
        settings: fields of `txlbench.commands.show_attention.AttentionRequest`, such as tokens and
            attention_length.

    Returns:
        A line for each layer, head and measure: mean distance in tokens, entropy in nats, scales
        as scores enter the softmax. Nothing is written.
    """
    import pandas as pd

    from txlbench.commands.show_attention import AttentionRequest, measure_attention
    from txlbench.reporting.attention_report import attention_lines

    request = AttentionRequest(model, **settings)
    return pd.DataFrame(map(dict, attention_lines(measure_attention(request))))


def ablate(spec: str | Path, **settings: Any) -> pd.DataFrame:
    """Trains and measures every row of an experiment file, as `txlbench ablate` does.

    Args:
        settings: fields of `txlbench.runs.plan.Request`, such as out, jobs,
            overrides=("train.max_step=200",) or only=("Shaw*",).

    Returns:
        The result table, as `results` gives it.
    """
    from rich.console import Console

    from txlbench.cli.progress import ProgressDisplay
    from txlbench.runs.ablation import ablate as run
    from txlbench.runs.plan import Request, open_experiment

    request = Request(Path(spec), **settings)
    run(request, ProgressDisplay(Console(soft_wrap=True, emoji=False)))
    return results(open_experiment(request)[1].path)


def results(experiment: str | Path) -> pd.DataFrame:
    """The result table of an experiment by its name under results/, or by its directory.

    A line for each row: losses with half-widths of their intervals, the paper's numbers, states
    and runs. It is the content of table.csv, read anew from the runs.
    """
    from txlbench.reporting.experiment_results import read_results
    from txlbench.reporting.provenance import Provenance
    from txlbench.reporting.result_table import table_frame

    found = ExperimentDirectory(under_results(Path(experiment)))
    if not found.spec_file.is_file():
        raise UserError(f"{experiment}: no experiment here", "give its name or its directory")
    read = read_results(found)
    return table_frame(read, Provenance.of(read, f"txlbench.results({experiment!r})"))
