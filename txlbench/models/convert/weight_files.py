"""The weights of a Hugging Face folder: safetensors or torch files, whole or in shards."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from txlbench.errors import UserError
from txlbench.files import read_json, write_atomically
from txlbench.models.convert import weights_only

WHOLE = "model.safetensors"
NAMES = (
    WHOLE,
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""In the order in which Hugging Face's loader looks for them."""


def read_weights(directory: Path) -> tuple[Path, dict[str, Tensor]]:
    """The file that stands for the weights, and its tensors by name.

    Raises:
        UserError: naming the file that is missing, damaged, or would execute code.
    """
    found = next((directory / name for name in NAMES if (directory / name).exists()), None)
    if found is None:
        raise UserError(f"{directory}: no weights", f"it needs one of {', '.join(NAMES)}")
    return found, _shards(found) if found.suffix == ".json" else _read(found)


def write_weights(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes one safetensors file, atomically; no two tensors may share memory."""
    # The loader of transformers insists on knowing that they are PyTorch's.
    content = save(dict(tensors), metadata={"format": "pt"})
    write_atomically(directory / WHOLE, lambda file: file.write(content))


def _shards(index: Path) -> dict[str, Tensor]:
    content = read_json(index)
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise UserError(f"{index}: weight_map: not a mapping to file names", "get the file again")
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name:
            raise UserError(f"{index}: weight_map: {name!r} leaves the folder", "mend the file")
        tensors |= _read(index.parent / name)
    for key, name in places.items():
        if key not in tensors:
            raise UserError(f"{index.parent / name}: {key}: missing", "get the file again")
    return tensors


def _read(path: Path) -> dict[str, Tensor]:
    content = _read_safetensors(path) if path.suffix == ".safetensors" else weights_only.load(path)
    if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
        raise UserError(f"{path}: not a state dict", "it must map names to tensors")
    return content


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file", "the index names it") from error
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not a safetensors file ({error})", "get it again") from error
