"""Which commit of this package is running."""

import subprocess
from pathlib import Path


def current_commit() -> str | None:
    """The commit of the checkout this package runs from, with + where it was edited."""
    here = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None
