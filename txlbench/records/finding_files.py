"""The files that findings are kept in, and what each holds."""

from collections.abc import Mapping

from txlbench.records.context_schema import ContextRecord
from txlbench.records.finding_schema import (
    BenchRecord,
    Finding,
    ReclRecord,
    SpeedRecord,
    TruthRecord,
)

FINDINGS: Mapping[str, type[Finding]] = {
    "recl.json": ReclRecord,
    "context.json": ContextRecord,
    "truth.json": TruthRecord,
    "bench.json": BenchRecord,
    "speed.json": SpeedRecord,
}
"""File names that are looked for, and what each holds."""
