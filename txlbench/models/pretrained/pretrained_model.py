"""Where pretrained models come from: a folder, the hub or its cache, or a GGUF file.

Weights are safetensors or GGUF, never a pickle, and no code that comes with them is run.
"""

import contextlib
import io
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txlbench.errors import UserError
from txlbench.files import read_json
from txlbench.models.pretrained.text_tokenizer import TextTokenizer, load_tokenizer

if TYPE_CHECKING:
    import torch

    from txlbench.models.pretrained.causal_lm import CausalModel

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "*.bin", "*.pt", "*.pth", "*.ckpt")
NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
"""A name on the hub: OWNER/NAME, or NAME of the oldest ones."""
WANTED = ["*.json", "*.safetensors", "*.txt", "*.model"]
"""What a model needs of its files on the hub."""
PADDED = ("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert", "xmod",
          "data2vec-text")  # fmt: skip
"""Architectures that number positions from the one after the padding token's."""
PROBE = 16
"""Tokens of the window that is tried before a model is used."""
GROWING = ("dynamic", "longrope")
"""Kinds of RoPE whose frequencies depend on the length of the window beyond the original one."""


@dataclass(frozen=True)
class PretrainedModel:
    """A causal language model of transformers whose weights are not loaded yet.

    Attributes:
        reference: what the user called it.
        folder: where its files lie.
        gguf: the name of its GGUF file there; None for safetensors.
    """

    reference: str
    folder: Path
    gguf: str | None = None

    @cached_property
    def config(self) -> Any:
        """The configuration of transformers; UserError if it has no causal language model."""
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

        found = _loaded(self, AutoConfig)
        kind = getattr(found, "model_type", type(found).__name__)
        if type(found) not in MODEL_FOR_CAUSAL_LM_MAPPING or found.is_encoder_decoder:
            raise UserError(
                f"{self.reference}: {kind} is no causal language model of transformers",
                "give a model that predicts the next token",
            )
        return found

    @property
    def _text_config(self) -> Any:
        """The configuration of the part that reads text."""
        return self.config.get_text_config(decoder=True)

    @property
    def architecture(self) -> str:
        """Such as `llama`."""
        return str(self.config.model_type)

    @property
    def vocabulary_size(self) -> int:
        """Token types that it predicts, padding of the matrix included."""
        return int(self._text_config.vocab_size)

    @property
    def positions(self) -> int | None:
        """The longest window it was made for, in tokens; None without limit.

        Where RoPE's frequencies change with the length of the window, one window gives all
        contexts up to the original length only.
        """
        config = self._text_config
        if self.architecture == "rwkv" or _has_alibi(config):
            return None
        limit = getattr(config, "max_position_embeddings", None)
        rope = getattr(config, "rope_parameters", None) or {}
        if rope.get("rope_type") in GROWING:
            original = rope.get("original_max_position_embeddings")
            limit = original or getattr(config, "original_max_position_embeddings", None) or limit
        if limit is None or int(limit) < 1:  # XLNet says -1
            return None
        return int(limit) - (config.pad_token_id + 1 if self.architecture in PADDED else 0)

    @property
    def attends(self) -> bool:
        """Whether every layer is softmax attention, as far as the configuration tells."""
        kinds = set(getattr(self._text_config, "layer_types", None) or ())
        has_heads = getattr(self._text_config, "num_attention_heads", None) is not None
        return has_heads and kinds <= {"full_attention", "sliding_attention"}

    @property
    def takes_attention_length(self) -> bool:
        """Whether a mask can decide what queries see; read before the weights, checked with them.

        The ALiBi of BLOOM and Falcon is computed from a mask of padding, and takes no other.
        """
        alibi = self.architecture == "bloom" or getattr(self._text_config, "alibi", False)
        return self.attends and not alibi

    @property
    def depth(self) -> int:
        """Number of layers."""
        return int(self._text_config.num_hidden_layers)

    @cached_property
    def parameters(self) -> int:
        """Number of parameters, shared ones once; no memory is taken for them."""
        import torch
        from transformers import AutoModelForCausalLM

        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(self.config)
        return sum(weight.numel() for weight in network.parameters())

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer; UserError if there is none."""
        return load_tokenizer(self.folder, self.gguf)

    @property
    def files(self) -> list[Path]:
        """The files of weights, sorted."""
        if self.gguf is not None:
            return [self.folder / self.gguf]
        return sorted(self.folder.glob("*.safetensors"))

    @property
    def settings(self) -> list[Path]:
        """The files beside the weights that decide losses."""
        kinds = ("*.json", "*.txt", "*.model")
        found = {file for kind in kinds for file in self.folder.glob(kind)}
        return [] if self.gguf else sorted(file for file in found if file.name not in WEIGHTS)

    def load(self, device: "torch.device", precision: str = "fp32") -> "CausalModel":
        """The model in evaluation mode on `device`.

        Args:
            precision: fp32 or bf16, the number format of weights and products.

        Raises:
            UserError: if weights are damaged, missing or of other shapes, or the model looks ahead.
        """
        import torch
        from transformers import AutoModelForCausalLM, GenerationConfig

        from txlbench.models.pretrained.causal_lm import CausalModel

        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        options = {"dtype": dtype, "output_loading_info": True, "ignore_mismatched_sizes": True}
        network, info = _loaded(self, AutoModelForCausalLM, **options)
        if mismatched := sorted(info["mismatched_keys"]):
            name, found, wanted = mismatched[0]
            raise UserError(
                f"{self.reference}: {len(mismatched)} of its weights have other shapes than "
                f"{CONFIG} says, such as {name}: {list(found)} found, {list(wanted)} expected",
                "get its files again",
            )
        if missing := sorted(info["missing_keys"]):
            raise UserError(
                f"{self.reference}: {len(missing)} of its weights are missing, such as "
                f"{missing[0]}",
                "get its files again",
            )
        if beyond := _beyond_layers(network, info["unexpected_keys"]):
            raise UserError(
                f"{self.reference}: weights of layers that {CONFIG} does not have, such as "
                f"{beyond}",
                "get its files again",
            )
        if unused := sorted(info["unexpected_keys"]):
            _tell_unused(self.reference, len(unused), unused[0])
        # What the folder says of sampling, such as a repetition penalty, nobody asked for.
        eos = getattr(network.generation_config, "eos_token_id", None)
        network.generation_config = GenerationConfig(eos_token_id=eos)
        model = CausalModel(network.to(device).eval(), self.tokenizer.bos)
        length = max(1, min(PROBE, (self.positions or PROBE) - (model.bos is not None)))
        tokens_T = torch.arange(length + 1, device=device) % self.vocabulary_size
        model.check_one_pass(tokens_T, self.reference)
        return model

    def save(self, folder: Path) -> None:
        """Writes it as a folder of safetensors in fp32, with its tokenizer."""
        import torch
        from transformers import AutoModelForCausalLM

        weights = self.load(torch.device("cpu")).network.state_dict()
        plain = AutoModelForCausalLM.from_config(self.config)  # what is dequantised cannot be saved
        plain.load_state_dict(weights)
        plain.save_pretrained(folder)
        self.tokenizer.save(folder)


@cache
def _tell_unused(reference: str, count: int, first: str) -> None:
    """Says once what a model has weights for and is not used."""
    weights = f"{count} weights of its files are" if count > 1 else "a weight of its files is"
    print(f"Warning: {reference}: {weights} not used, such as {first}", file=sys.stderr)


def _beyond_layers(network: Any, unexpected: Iterable[str]) -> str | None:
    """The first of the unused weights that belongs to a layer beyond the network's last one.

    Others may be meant for something else, such as pictures, and are left alone.
    """
    from torch.nn import ModuleList

    lists = {name: len(each) for name, each in network.named_modules() if type(each) is ModuleList}
    for key in sorted(unexpected):
        for name, length in lists.items():
            number = key.removeprefix(f"{name}.").partition(".")[0]
            if key.startswith(f"{name}.") and number.isdecimal() and int(number) >= length:
                return key
    return None


def open_folder(reference: str, folder: Path) -> PretrainedModel:
    """The model of a folder as transformers saves it.

    Raises:
        UserError: if files are missing, or would run code.
    """
    require_transformers()
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder", "give a folder with config.json and weights")
    for name in (CONFIG, "tokenizer_config.json"):
        _refuse_remote_code(folder / name)
    if not any((folder / name).is_file() for name in WEIGHTS):
        pickles = [file.name for pattern in PICKLES for file in sorted(folder.glob(pattern))]
        if pickles:
            raise UserError(
                f"{folder / pickles[0]}: a pickle can run code, only safetensors are read",
                "where you trust it, load it with transformers and save_pretrained to a new folder",
            )
        raise UserError(f"{folder}: no weights", f"it needs {' or '.join(WEIGHTS)}")
    return PretrainedModel(reference, folder)


def open_gguf(reference: str, file: Path) -> PretrainedModel:
    """The model of a GGUF file, whose weights transformers dequantises."""
    require_transformers()
    if not file.is_file():
        raise UserError(f"{file}: no such file", "give a GGUF file")
    with file.open("rb") as opened:
        if opened.read(4) != b"GGUF":
            raise UserError(f"{file}: not a GGUF file", "get it again")
    return PretrainedModel(reference, file.parent, file.name)


def open_hub(reference: str, name: str) -> PretrainedModel:
    """The model of the hub's name `name`, from the local cache or the network."""
    require_transformers()
    from huggingface_hub import snapshot_download
    from transformers.utils import logging

    if not NAME.fullmatch(name):
        raise UserError(f"hf:{name}: no such folder", "give a folder, or OWNER/NAME of the hub")
    logging.disable_progress_bar()
    try:
        return open_folder(reference, Path(snapshot_download(name, local_files_only=True)))
    except Exception:  # not there, or not all of it
        pass
    try:
        folder = Path(snapshot_download(name, allow_patterns=WANTED, etag_timeout=5))
    except Exception as error:  # of several libraries
        raise UserError(
            f"hf:{name}: no such folder, not in the hub's cache, and the hub did not give it "
            f"({type(error).__name__})",
            f"download config.json, the tokenizer's files and *.safetensors of {name} elsewhere "
            "(`hf download`), and pass their folder as hf:DIR",
        ) from error
    return open_folder(reference, folder)


def require_transformers() -> None:
    """Refuses (UserError) what needs transformers where it is not installed."""
    try:
        from transformers.utils import logging
    except ImportError as error:
        raise UserError(
            "models of Hugging Face: transformers is not installed", "pip install 'txlbench[hf]'"
        ) from error
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def model_type(folder: Path) -> str | None:
    """What the `config.json` of a folder calls its architecture; None if it says nothing."""
    path = folder / CONFIG
    content = read_json(path) if path.is_file() else None
    return content.get("model_type") if isinstance(content, dict) else None


def _refuse_remote_code(path: Path) -> None:
    content = read_json(path) if path.is_file() else {}
    if path.name == CONFIG and not path.is_file():
        raise UserError(f"{path}: no such file", "is it a Hugging Face model folder?")
    code = content.get("auto_map") if isinstance(content, Mapping) else None
    if code:
        raise UserError(
            f"{path}: auto_map: names code of its own, which is never run",
            "give a model whose architecture is part of transformers",
        )


def _loaded(source: PretrainedModel, loader: Any, **options: Any) -> Any:
    """What `loader` of transformers makes of the model's files; UserError if it refuses."""
    if source.gguf is not None:
        options["gguf_file"] = source.gguf
    elif loader.__name__ != "AutoConfig":
        options["use_safetensors"] = True
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # bars of its own
            return loader.from_pretrained(
                source.folder, trust_remote_code=False, local_files_only=True, **options
            )
    except ImportError as error:
        raise UserError(
            f"{source.reference}: {error}", "install it, or pip install 'txlbench[hf]'"
        ) from error
    except Exception as error:  # transformers raises every kind
        first = " ".join(str(error).split())[:200]
        raise UserError(
            f"{source.reference}: transformers cannot read it ({type(error).__name__}: {first})",
            "check its files, or save it anew with save_pretrained",
        ) from error


def _has_alibi(config: Any) -> bool:
    attention = getattr(config, "attn_config", None)
    return bool(getattr(config, "alibi", False) or getattr(attention, "alibi", False))
