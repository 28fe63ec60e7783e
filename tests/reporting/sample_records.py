"""Records as `generate --samples` writes them, made by hand."""

from pathlib import Path

from txlbench.files import write_json
from txlbench.records.finding_schema import ReclSource
from txlbench.records.sample_schema import SampledText, SamplesRecord


def record(**changes):
    source = ReclSource(
        reference="a/XL", path=None, corpus=None, split="test", vocabulary=None, model=None,
        longest=None, settings={"corpus": "mine"},
    )  # fmt: skip
    made = SamplesRecord(
        schema=SamplesRecord.SCHEMA,
        commit="abc",
        command="txlbench generate a/XL --samples 2 --prompt-tokens 9",
        models={"XL": source},
        context_tokens=9,
        tokens=3,
        top_k=40,
        temperature=1.0,
        seed=1,
        mem_len=16,
        unit="bpc",
        samples=(
            SampledText(
                place=1234, context="it is <b>", sample=" not", reference=" so & so",
                ids=(1, 2, 3), loss=1.0, reference_loss=2.0, agreeing=3,
            ),
            SampledText(
                place=5, context="x" * 100, sample="\n\ny", reference="z", ids=(4, 5, 6), loss=2.0,
                reference_loss=4.0, agreeing=2,
            ),
        ),
    )  # fmt: skip
    return made.model_copy(update=changes)


def write_record(folder):
    write_json(folder / "samples.json", record().content)
    return Path(folder)
