"""One table for each measure of context."""

from txlbench.records.context_schema import ContextRecord
from txlbench.reporting.context import (
    NOT_AVAILABLE,
    filled_table,
    in_unit,
    model_columns,
    unit_of_loss,
    with_interval,
)
from txlbench.reporting.table import EMPTY, Column, Table


def curve_table(record: ContextRecord) -> Table:
    """Mean losses at each context with their intervals, nats, and the distance from the best."""
    lines = [(group, model) for group in record.named_groups() for model in group.models]
    curves = [group.curve(model) for group, model in lines]
    columns = [
        Column(f"{context}", tuple(with_interval(curve.losses[row]) for curve in curves), True)
        for row, context in enumerate(record.contexts)
    ]
    above = Column(
        f"above best at {record.contexts[-1]}",
        tuple(with_interval(curve.above_best[-1]) for curve in curves),
        True,
    )
    footer = ["Nats a token, given exactly so many predecessors."]
    return filled_table(record, "Loss by context", [*model_columns(lines), *columns, above], footer)


def harm_table(record: ContextRecord) -> Table:
    """What each step, and all of them together, cost and gain."""
    found = [
        (group, curve.model, harm)
        for group in record.named_groups()
        for curve in group.curves
        for harm in curve.harm
    ]
    columns = [
        *model_columns([(group, model) for group, model, _ in found]),
        Column("step", tuple(f"{harm.shorter} to {harm.longer}" for *_, harm in found)),
        Column("harmed", tuple(with_interval(harm.harmed, ".1%") for *_, harm in found), True),
        Column("helped", tuple(with_interval(harm.helped, ".1%") for *_, harm in found), True),
        Column("cost (nats)", tuple(with_interval(harm.cost, ".4f") for *_, harm in found), True),
        Column("gain (nats)", tuple(with_interval(harm.gain, ".4f") for *_, harm in found), True),
    ]
    footer = [
        "Harmed and helped: shares of tokens whose loss changes by more than 0.1 nats. Cost and "
        "gain: nats a token over all tokens; noise between two contexts adds to both alike."
    ]
    return filled_table(record, "Net harm of context", columns, footer)


def power_law_table(record: ContextRecord) -> Table:
    """The fits that hold."""
    found = [(group, law) for group in record.named_groups() for law in group.power_laws]
    columns = [
        *model_columns([(group, law.model) for group, law in found]),
        Column("beta", tuple(with_interval(law.beta) for _, law in found), True),
        Column(
            f"alpha ({record.counted_in})",
            tuple(with_interval(law.alpha, ".3g") for _, law in found),
            True,
        ),
        Column("gamma (nats)", tuple(with_interval(law.gamma) for _, law in found), True),
        Column("R²", tuple(f"{law.r_squared:.4f}" for _, law in found), True),
        Column(
            "largest residual (nats)",
            tuple(f"{max(law.residuals, key=abs):+.4f}" for _, law in found),
            True,
        ),
        Column(
            f"still to gain up to {4 * record.contexts[-1]} (nats)",
            tuple(with_interval(law.four_times) for _, law in found),
            True,
        ),
    ]
    return filled_table(record, "Power law of context", columns)


def information_table(record: ContextRecord) -> Table:
    """Usable information of each step for each group, and the ICL scores."""
    found = [(group, step) for group in record.named_groups() for step in group.information]
    columns = [
        Column("group", tuple(group.name for group, _ in found)),
        Column("step", tuple(f"{step.shorter} to {step.longer}" for _, step in found)),
        Column("nats", tuple(with_interval(step.nats, ".4f") for _, step in found), True),
        Column("best before", tuple(step.best[0] for _, step in found)),
        Column("best after", tuple(step.best[1] for _, step in found)),
    ]
    footer = [
        f"ICL score of {each.model}, m({each.longer}) - m({each.shorter}): "
        f"{with_interval(each.score)} nats."
        for group in record.groups
        for each in group.icl_scores
    ]
    return filled_table(record, "V-information of each step", columns, footer)


def class_table(record: ContextRecord) -> Table:
    """Gain and ECL of each class of tokens."""
    found = [
        (group, each, curve)
        for group in record.named_groups()
        for each in group.classes
        for curve in each.curves
    ]
    unit = unit_of_loss(record.unit)
    columns = [
        *model_columns([(group, curve.model) for group, _, curve in found]),
        Column("tokens by", tuple(each.kind for _, each, _ in found)),
        Column("class", tuple(each.name for _, each, _ in found)),
        Column("share", tuple(f"{each.share:.1%}" for _, each, _ in found), True),
        Column(
            f"gain ({unit})",
            tuple(with_interval(in_unit(curve.gain, record.unit)) for *_, curve in found),
            True,
        ),
        Column(
            "part of gain", tuple(with_interval(curve.part, ".0%") for *_, curve in found), True
        ),
        Column("ECL", tuple(with_interval(curve.ecl, ".0f") for *_, curve in found), True),
    ]
    footer = [
        f"Gain: from context {record.contexts[0]} to {record.contexts[-1]}, for each "
        "token of the class; part: of the model's whole gain."
    ]
    return filled_table(record, "Classes of tokens", columns, footer)


def key_table(record: ContextRecord) -> Table:
    """LongPPL by keys of the group's best model, and by keys of the model itself."""
    found = [(group, each) for group in record.named_groups() for each in group.key_tokens]
    columns = [
        *model_columns([(group, each.model) for group, each in found]),
        Column("chosen by", tuple(each.chosen_by for _, each in found)),
        Column("key tokens", tuple(f"{each.tokens:,}" for _, each in found), True),
        Column("share", tuple(with_interval(each.share, ".2%") for _, each in found), True),
        Column("by chance", tuple(with_interval(each.by_chance, ".2%") for _, each in found), True),
        Column("LongPPL", tuple(with_interval(each.longppl, ".3f") for _, each in found), True),
    ]
    footer = [
        f"Short context {found[0][1].shorter}, long context {record.contexts[-1]}. A model that "
        "chooses its own keys is flattered: noise that lowers a loss makes its token key too."
        if found
        else ""
    ]
    return filled_table(record, "LongPPL", columns, footer)


def exponent_table(record: ContextRecord) -> Table:
    """Mutual information at each length, and its exponent."""
    found = [
        (group, group.mutual_information, each)
        for group in record.named_groups()
        if group.mutual_information is not None
        for each in group.mutual_information.exponents
    ]
    lengths = sorted({each for *_, line in found for each in line.lengths})
    columns = [
        *model_columns([(group, each.model) for group, _, each in found]),
        Column("first terms", tuple(each.way for *_, each in found)),
        Column(
            "exponent", tuple(with_interval(e.exponent) or NOT_AVAILABLE for *_, e in found), True
        ),
        Column(
            "R²",
            tuple(EMPTY if e.r_squared is None else f"{e.r_squared:.3f}" for *_, e in found),
            True,
        ),
        *(
            Column(
                f"I({size})",
                tuple(
                    with_interval(dict(zip(e.lengths, e.nats, strict=True)).get(size), ".2f")
                    for *_, e in found
                ),
                True,
            )
            for size in lengths
        ),
    ]
    footer = [
        f"Nats, over {about.tokens:,} tokens. m(0): {about.empty or 'left out with its term'}"
        + (
            ""
            if about.bigram_entropy is None
            else f"; bigram entropy {about.bigram_entropy:.3f} nats, counted on {about.counted:,} "
            "tokens, is four fifths of the first two terms where they are corrected"
        )
        + "."
        for about in dict.fromkeys(found_about for _, found_about, _ in found)
    ]
    return filled_table(record, "Bipartite mutual information (L²M)", columns, footer)


def measure_tables(record: ContextRecord) -> tuple[Table, ...]:
    """All of them, those without rows included."""
    tables = (
        curve_table,
        class_table,
        key_table,
        harm_table,
        power_law_table,
        exponent_table,
        information_table,
    )
    return tuple(make(record) for make in tables)
