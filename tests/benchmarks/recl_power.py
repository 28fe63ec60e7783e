"""Level and power of RECL above the null by simulation: python -m tests.benchmarks.recl_power

Prints in percent how often a step counts by three rules, at r = .1, .5, 1: for true gains of 0 to
.02, where every token gains alike and single losses vary by .1 nats (standard deviation) from
context to context, and without gain where that noise is correlated or skewed. Five minutes on one
core, half a minute with --trials 100.
"""

import argparse

from tests.evaluation.recl.simulated import NOISES, SHARES, rates

GAINS = (0.0, 0.005, 0.01, 0.015, 0.02)
TOKENS = (2000, 10000)


def main() -> None:
    """Prints both tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    trials = parser.parse_args().trials
    print(f"{trials} trials a line; r = {', '.join(map(str, SHARES))}\n")
    print("| tokens | noise | true gain | refused | p alone | above null | interval |")
    print("|---:|---|---:|---:|---|---|---|")
    for tokens in TOKENS:
        for gain in GAINS:
            line(tokens, "independent", gain, trials)
    for tokens in TOKENS:
        for noise in list(NOISES)[1:]:
            line(tokens, noise, 0.0, trials)


def line(tokens: int, noise: str, gain: float, trials: int) -> None:
    """One line of the table."""
    found = rates(tokens, gain, trials, noise)
    rules = (found.by_p, found.above_null, found.by_interval)
    cells = (" / ".join(f"{100 * rate:.1f}" for rate in rule) for rule in rules)
    refused = f"{100 * found.refused:.0f}"
    print(f"| {tokens:,} | {noise} | {gain:g} | {refused} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
