"""The `txlbench` command: finds a verb, loads its file, and turns errors into exit statuses."""

import importlib
import io
import signal
import sys
from collections.abc import Mapping

import click

from txlbench import __version__
from txlbench.errors import ExitStatus, UserError, suggestion
from txlbench.files import is_transient
from txlbench.machine import set_threads

COMMANDS: Mapping[str, tuple[str, str]] = {
    "ablate": (
        "txlbench.cli.experiments:ablate",
        "Train and measure every row of an experiment file.",
    ),
    "data": ("txlbench.cli.data:data", "List, prepare, show and export corpora."),
    "models": ("txlbench.cli.pretrained:models", "List, prepare and show models."),
    "figures": ("txlbench.cli.results:figures", "Rebuild tables and figures from stored results."),
    "report": ("txlbench.cli.results:report", "Make a page of each result, and an index of all."),
    "compare": (
        "txlbench.cli.compare:compare",
        "Say which row beats which, by how much, and whether it is resolved.",
    ),
    "status": ("txlbench.cli.results:status", "Show every run with its state, loss and progress."),
    "prune": ("txlbench.cli.results:prune", "List what no result needs, and delete it."),
    "eval": ("txlbench.cli.models:evaluate", "Measure the loss of any model on any text."),
    "recl": ("txlbench.cli.recl:recl", "Measure how much context models really use (RECL)."),
    "context": (
        "txlbench.cli.recl:context",
        "Say what losses by context tell, in words and figures.",
    ),
    "probe": ("txlbench.cli.recl:probe", "Change, repeat or cut context, and see what is lost."),
    "truth": ("txlbench.cli.recl:truth", "Compare RECL with its true value on a made corpus."),
    "bench": ("txlbench.cli.speed:bench", "Time this machine: training, evaluation, generation."),
    "speed": ("txlbench.cli.speed:speed", "Time evaluation with a window and with cached state."),
    "attention": ("txlbench.cli.look:attention", "Show where heads attend, and by which terms."),
    "generate": ("txlbench.cli.look:generate", "Generate text with any model."),
    "import": ("txlbench.cli.models:import_", "Convert weights of another program."),
    "export": ("txlbench.cli.models:export", "Write weights as a Hugging Face folder."),
    "sync": ("txlbench.cli.results:sync", "Deliver to MLflow what it lacks, or rebuild its store."),
    "merge": ("txlbench.cli.results:merge", "Merge the results of several machines."),
    "new": ("txlbench.cli.experiments:new", "Write a commented experiment file to start from."),
    "schema": ("txlbench.cli.experiments:schema", "List the keys of an experiment file."),
    "check": (
        "txlbench.cli.experiments:check",
        "Test invariants on the models of experiment files.",
    ),
}
"""Verb -> (where it lives, what it does). Only the verb that is called is imported."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Train": ("new", "ablate", "schema", "check", "data"),
    "Look at results": ("status", "compare", "report", "figures", "sync", "merge", "prune"),
    "Measure a model": ("eval", "recl", "truth", "attention", "generate"),
    "Time": ("speed", "bench"),
    "Bring and take models": ("models", "import", "export"),
}
"""Verbs by purpose, as --help lists them; a verb that is in none stands under "Others"."""
EXAMPLES = (
    "txlbench ablate experiments/quick.yaml",
    "txlbench recl --models quick/Transformer-XL --contexts 16:128:16 --tokens 500",
)


class LazyGroup(click.Group):
    """A group whose commands are imported when called, so that --help is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no command '{args[0]}'; {suggestion(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        grouped = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in COMMANDS if name not in grouped)
        for title, names in {**GROUPS, "Others": others}.items():
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, COMMANDS[name][1]) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Examples"):
            for example in EXAMPLES:
                formatter.write(f"  {example}\n")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """How much context does a language model use, and which design gave it that?

    Reproduces the ablations and the RECL metric of the Transformer-XL paper on any text.
    """


def main() -> None:
    """Entry point: runs `cli`, prints errors as one line and exits with the status they mean."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of any encoding gets all characters
            stream.reconfigure(errors="backslashreplace")
    set_threads()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # interrupts as Ctrl-C does
    try:
        status = cli.main(prog_name="txlbench", standalone_mode=False)
    except UserError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(ExitStatus.USAGE)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(ExitStatus.USAGE)
    except click.ClickException as error:
        click.echo(f"Error: {_one_line(error)}", err=True)
        sys.exit(ExitStatus.USAGE)
    except OSError as error:
        if is_transient(error):
            click.echo(f"Error: {error}; nothing is lost, type it again", err=True)
            sys.exit(ExitStatus.RUN_FAILED)
        place = f"{error.filename}: " if error.filename else ""
        click.echo(f"Error: {place}{error.strerror or error}; give another file or place", err=True)
        sys.exit(ExitStatus.USAGE)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.exit(ExitStatus.INTERRUPTED)
    sys.exit(status if isinstance(status, int) else ExitStatus.DONE)


def _one_line(error: click.ClickException) -> str:
    """What is wrong, and which --help tells more."""
    message = " ".join(error.format_message().split()).removesuffix(".")
    context = getattr(error, "ctx", None)
    return f"{message}; see '{context.command_path} --help'" if context else message


if __name__ == "__main__":
    main()
