"""The shape of experiment files for people and editors: where keys come from, and JSON Schema."""

from collections.abc import Iterator, Mapping
from typing import Any

from txlbench.config.base import DocumentedKey
from txlbench.config.catalogue import CORPORA, ENCODINGS
from txlbench.config.grid import BASE_KEYS, ExperimentFile, documented_keys
from txlbench.config.run_config import CorpusConfig, RunConfig
from txlbench.config.search_range import TUNABLE

DIALECT = "https://json-schema.org/draft/2020-12/schema"
OWN = "txlbench"
_PAPER = "Dai et al. 2019 (Transformer-XL)"
_CODE = "Transformer-XL code, "
_AL_RFOU = "Al-Rfou et al. 2019"
_MERITY = "Merity et al. 2018 (AWD-LSTM)"
_FLAGS = {
    "model": (
        *("n_layer", "n_head", "d_head", "d_embed", "d_model", "d_inner", "dropout", "dropatt"),
        *("init_std", "proj_init_std", "div_val", "clamp_len", "same_length", "pre_lnorm"),
    ),
    "train": (
        *("tgt_len", "mem_len", "batch_size", "batch_chunk", "max_step", "lr", "warmup_step"),
        "clip",
    ),
}
"""Keys that have the name of an option of train.py."""
SOURCES: Mapping[str, str] = {
    **{f"{part}.{key}": f"{_CODE}--{key}" for part, keys in _FLAGS.items() for key in keys},
    "model.encoding": f"{_PAPER}, section 3.3, and others (docs/encodings.md)",
    "model.cutoffs": f"{_CODE}--adaptive; Baevski and Auli 2019",
    "model.tie_projs": f"{_CODE}tie_projs of train.py",
    "model.untie_r": f"{_CODE}--untie_r (TensorFlow)",
    "model.max_distance": "Shaw et al. 2018, clipping distance k",
    "model.shaw_bias": f"{_CODE}--attn_type 1",
    "model.architecture": "Hugging Face transformers, model_type",
    "model.config": "Hugging Face transformers, the architecture's configuration",
    "model.variational": "Gal and Ghahramani 2016",
    **{f"model.{key}": _MERITY for key in ("dropoute", "dropouti", "dropouth", "wdrop")},
    "train.recurrence": f"{_PAPER}, section 3.2",
    "train.loss": f"{_PAPER}, Table 6",
    "train.log_interval": f"{_CODE}--log-interval",
    "train.eval_interval": f"{_CODE}--eval-interval",
    "train.eval_tokens": f"{_CODE}--max_eval_steps",
    "train.average_from": f"{_PAPER}, Table 5",
    "train.aux_layers": _AL_RFOU,
    "train.aux_positions": _AL_RFOU,
    "evaluate.attention_lengths": f"{_PAPER}, Table 6 and Appendix B",
    "evaluate.batch_size": f"{_CODE}--batch_size of eval.py",
    "evaluate.clamp_len": f"{_CODE}--clamp_len of eval.py",
    "evaluate.mem_len": f"{_CODE}--mem_len of eval.py",
    "evaluate.split": f"{_CODE}--split of eval.py",
    "evaluate.stride": f"{_AL_RFOU}; {_PAPER}, Figure 1b",
    "evaluate.tgt_len": f"{_CODE}--eval_tgt_len",
    "rows.paper": f"{_PAPER}, the row's numbers",
}
"""Key -> the paper or the code that its name and meaning come from, where that is not ours."""


def source_of(key: str) -> str:
    """Where a key comes from: a paper, an option of the released code, or txlbench."""
    return SOURCES.get(key, OWN)


def experiment_schema() -> dict[str, Any]:
    """JSON Schema of experiment files, by which editors complete and check them.

    It knows keys, types and bounds; which combinations are possible `ablate --dry-run` tells.
    """
    keys = {each.name: each for each in documented_keys()}
    base = dict(_base_keys(keys))
    settings = {name: value for name, value in base.items() if "." in name or name == "corpus"}
    top = _plain(ExperimentFile.model_json_schema()["properties"])
    row = _plain(ExperimentFile.model_json_schema()["$defs"]["Row"]["properties"])
    for name in top.keys() & keys.keys():
        top[name] |= _about(keys[name])
    row = {name: value | _about(keys[f"rows.{name}"]) for name, value in row.items()}
    row["set"] |= _mapping(settings)
    row["tuned"] = {"type": "object", **_about(keys["rows.tuned"])}  # `ablate` writes it
    top["rows"]["items"] = _mapping(row)
    top["tune"] |= {"propertyNames": {"pattern": rf"^({'|'.join(TUNABLE)})[.]"}}
    lists = {
        name: {"type": "array", "minItems": 1, "items": value} for name, value in settings.items()
    }
    top["grid"] |= _mapping(lists)
    top["exclude"]["items"] = _mapping(settings) | {"minProperties": 1}
    top |= {name: base[name] for name in BASE_KEYS}
    return {
        "$schema": DIALECT,
        "title": "txlbench experiment",
        **_mapping(top),
        "required": ExperimentFile.model_json_schema()["required"],
    }


def _base_keys(keys: Mapping[str, DocumentedKey]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The sections of the base configuration, and each of their keys by its dotted name."""
    sections = RunConfig.model_json_schema()["$defs"]
    for name in BASE_KEYS:
        annotation = RunConfig.model_fields[name].annotation
        assert annotation is not None
        properties = _plain(sections[annotation.__name__]["properties"])
        for key, value in properties.items():
            value |= _about(keys[f"{name}.{key}"])
        if name == "model":
            properties["encoding"] = _open_choice(properties["encoding"], ENCODINGS)
        section = _mapping(properties)
        if name == "corpus":
            section = {"anyOf": [_open_choice({"type": "string"}, CORPORA), section]}
            section["description"] = (CorpusConfig.__doc__ or "").partition("\n")[0]
        yield name, section
        for key, value in properties.items():
            yield f"{name}.{key}", value


def _mapping(properties: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with no other keys; those of an architecture's own configuration are open."""
    found = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    if "model.config" in properties:
        found["patternProperties"] = {r"^model\.config\..": {}}
    return found


def _open_choice(value: Mapping[str, Any], known: Mapping[str, object]) -> dict[str, Any]:
    """A text that is one of the `known`, or a path or name that a plug-in brings."""
    rest = {key: each for key, each in value.items() if key != "type"}
    return {**rest, "anyOf": [{"enum": list(known)}, {"type": "string"}]}


def _about(key: DocumentedKey) -> dict[str, str]:
    return {"description": f"{key.meaning} ({source_of(key.name)})"}


def _plain(properties: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Properties without the titles that pydantic makes of their names."""
    return {
        name: {key: each for key, each in value.items() if key != "title"}
        for name, value in properties.items()
    }
