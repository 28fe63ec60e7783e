"""What a verb says of a finding: its table, its files, and what keeps it from MLflow."""

from collections.abc import Iterable
from typing import Any

import click


def show(published: Any, warnings: Iterable[str] = ()) -> None:
    """Prints a `Published`."""
    for warning in (*warnings, *filter(None, [published.undelivered])):
        click.echo(f"Warning: {warning}", err=True)
    click.echo(published.written.text)
    for path in (published.path, *published.written.paths):
        click.echo(path)
