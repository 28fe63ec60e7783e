"""Every finding that is looked for can be shown."""

from txlbench.records.experiment_directory import FINDINGS
from txlbench.reporting.findings import REPORTS


def test_each_has_a_report():
    assert set(REPORTS) == set(FINDINGS)
