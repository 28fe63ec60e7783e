"""Options that several verbs share, lists of numbers as values, and help that ends in examples."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args

import click

from txlbench.config.base import Split
from txlbench.config.catalogue import Level

if TYPE_CHECKING:
    from txlbench.reporting.figures.style import Look

MOST_NUMBERS = 10_000
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class _WithExamples:
    """Ends the help of a command in examples, each of which a test runs."""

    def __init__(self, *args: Any, examples: Iterable[str] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"  {example}\n")


def _load_plugins(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001
    paths: tuple[Path, ...],
) -> None:
    """Before other options are read, as names of these may be a plug-in's; not for completion."""
    if paths and not ctx.resilient_parsing:
        from txlbench.config.plugins import load_files

        load_files(paths)


class Verb(_WithExamples, click.Command):
    """A command whose help ends in examples; each takes plug-ins."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params.append(
            click.Option(
                ["--plugin"],
                type=click.Path(path_type=Path),
                multiple=True,
                is_eager=True,
                expose_value=False,
                callback=_load_plugins,
                metavar="FILE.py",
                help="File that registers encodings, models or corpora; executed, may be repeated.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuses an empty path, which would be the current folder, before anything is loaded."""
        if not ctx.resilient_parsing:
            given, _, _ = self.make_parser(ctx).parse_args(list(args))
            for param in filter(_takes_path, self.params):
                value = given.get(param.name or "")
                if "" in (value if isinstance(value, list) else [value]):
                    raise click.BadParameter("empty; give a path or drop the option", ctx, param)
        return super().parse_args(ctx, args)


def _takes_path(param: click.Parameter) -> bool:
    if not isinstance(param, click.Option):
        return False
    return isinstance(param.type, click.Path) or "FILE" in (param.metavar or "")


class VerbGroup(_WithExamples, click.Group):
    """A group of commands whose help ends in examples."""


def verb(
    name: str, *examples: str, group: click.Group | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Makes a function the command `name`, of `group` if given; its help ends in `examples`."""
    command = click.command if group is None else group.command
    return command(name, cls=Verb, examples=examples)


device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="auto|cpu|cuda|cuda:N",
    help="Device to compute on; auto takes a GPU if there is one.",
)
checkpoint_option = click.option(
    "--checkpoint",
    type=click.Choice(["best", "last"]),
    default="best",
    show_default=True,
    help="Weights of a run to load: those with the lowest validation loss, or the last.",
)
format_option = click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)
UNIT_OF_A_TEXT = "Unit that a text is cut into."
LEVELS = click.Choice(get_args(Level))
level_option = click.option(
    "--level", type=LEVELS, help=f"{UNIT_OF_A_TEXT}  [default: as the model reads, else byte]"
)
corpus_level_option = click.option(
    "--level", type=LEVELS, help=f"{UNIT_OF_A_TEXT}  [default: byte]"
)
corpus_option = click.option(
    "--corpus",
    metavar="NAME|FILE",
    help="Named corpus, or text file, to measure on.  [default: the one trained on]",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Random seed of the sign-flip test and the bootstrap.",
)


split_option = click.option(
    "--split",
    type=click.Choice((*get_args(Split), "all")),
    help="Split to measure on.  [default: test; all of a text file]",
)


force_option = click.option(
    "--force", is_flag=True, help="Replaces what an earlier call left there, and nothing else."
)


def launch_options(function: FunctionT) -> FunctionT:
    """--launcher, --address and --resource."""
    for option in reversed(
        (
            click.option(
                "--launcher",
                type=click.Choice(["process", "ray", "slurm"]),
                default="process",
                show_default=True,
                help="What starts runs: processes of this machine, a Ray cluster, or Slurm.",
            ),
            click.option(
                "--address",
                metavar="ADDRESS",
                help="Address of the Ray cluster.  [default: one that runs here, else a local one]",
            ),
            click.option(
                "--resource",
                "resources",
                multiple=True,
                metavar="KEY=VALUE",
                help="What each run takes on a cluster: cpus, gpus, memory; also what else the "
                "launcher knows, as partition with Slurm. May be repeated.",
            ),
        )
    ):
        function = option(function)
    return function


def out_option(
    what: str, default: Path | None = None, instead: str = ""
) -> Callable[[FunctionT], FunctionT]:
    """--out DIRECTORY.

    Args:
        what: what the directory is for.
        instead: the default in words, where it is not a fixed one.
    """
    return click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIRECTORY",
        default=default,
        show_default=default is not None,
        help=what + (f"  [default: {instead}]" if instead else ""),
    )


precision_option = click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16", "fp16"]),
    default="fp32",
    show_default=True,
    help="Number format of a pretrained model, or of the keys and values that another keeps.",
)


def count_option(
    flag: str, default: int | None, text: str, least: int = 1, most: int | None = None
) -> Callable[[FunctionT], FunctionT]:
    """An option that takes a whole number from `least` to `most`, or without upper bound."""
    return click.option(
        flag,
        type=click.IntRange(least, most),
        default=default,
        show_default=default is not None,
        help=text,
    )


class NumberRange(click.FloatRange):
    """A number between bounds, which nan passes in click's own range: it compares as neither."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


class NumberList(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """Numbers divided by commas, each once; whole ones also as FIRST:LAST:STEP.

    Args:
        number: int or float.
        rule: what each number has to be, in words.
        allows: whether one is so.
        fewest: numbers needed at least.
        ranges: takes FIRST:LAST:STEP, LAST included, and gives the numbers in ascending order.
    """

    def __init__(
        self,
        number: Callable[[str], float],
        rule: str,
        allows: Callable[[float], bool],
        fewest: int = 1,
        ranges: bool = False,
    ) -> None:
        self.name = "A,B,...|FIRST:LAST:STEP" if ranges else "A,B,..."
        self._number, self._rule, self._allows = number, rule, allows
        self._fewest, self._ranges = fewest, ranges

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = self._numbers(value)
        except click.BadParameter as error:
            self.fail(error.message, param, ctx)
        except (ValueError, OverflowError):
            forms = " or FIRST:LAST:STEP" if self._ranges else ""
            self.fail(f"{value!r} is not a list of numbers A,B,...{forms}", param, ctx)
        if len(numbers) < self._fewest:
            self.fail(f"{value!r} has fewer than {self._fewest} numbers", param, ctx)
        if not all(map(self._allows, numbers)):
            self.fail(f"{value!r} has a number that is not {self._rule}", param, ctx)
        return numbers

    def _numbers(self, text: str) -> tuple[float, ...]:
        if not self._ranges or ":" not in text:
            numbers = dict.fromkeys(map(self._number, text.split(",")))
            return tuple(sorted(numbers) if self._ranges else numbers)
        first, last, step = map(int, text.split(":"))
        spread = range(first, last + 1, step) if step > 0 else range(0)
        if len(spread) > MOST_NUMBERS:
            raise click.BadParameter(
                f"{text!r} has {len(spread):,} numbers, at most {MOST_NUMBERS:,} are taken; "
                "raise STEP"
            )
        return tuple(spread)


LENGTHS = NumberList(int, "at least 1", lambda length: length >= 1)
CONTEXTS = NumberList(int, "at least 1", lambda context: context >= 1, fewest=2, ranges=True)
SHARES = NumberList(float, "above 0 and up to 1", lambda share: 0 < share <= 1)

shares_option = click.option(
    "--r",
    "shares",
    type=SHARES,
    default="0.1,0.5,1.0",
    show_default=True,
    help="Shares r of the tokens that count: those that are hardest to predict.",
)


class FigureWidth(click.ParamType):  # type: ignore[type-arg]
    """Inches, or the width of one or two columns of a paper."""

    name = "INCHES|single|double"
    COLUMNS: ClassVar = {"single": 3.3, "double": 6.8}

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """Words as they are typed, which click would put in capitals."""
        return self.name

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            width = self.COLUMNS.get(str(value).lower()) or float(value)
        except ValueError:
            width = 0.0
        if not 2 <= width <= 20:
            self.fail(f"{value!r} is none of 2 to 20 inches, single and double", param, ctx)
        return width


WIDTH_OF_FIGURES = "Width of the figures, letters in proportion: single is 3.3 inches, double 6.8."


def _look(_: click.Context, __: click.Parameter, width: float | None) -> "Look | None":
    if width is None:
        return None
    from txlbench.reporting.figures.style import Look

    return Look(width=width)


width_option = click.option(
    "--width",
    "look",
    type=FigureWidth(),
    callback=_look,
    help=f"{WIDTH_OF_FIGURES}  [default: 7.2]",
)


def show(published: Any) -> None:
    """Prints a `PublishedFinding`."""
    for warning in filter(None, (*published.record.warnings, published.undelivered)):
        click.echo(f"Warning: {warning}", err=True)
    click.echo(published.written.text)
    for path in (published.path, *published.written.paths):
        click.echo(path)
