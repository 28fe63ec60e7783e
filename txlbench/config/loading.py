"""Reads YAML with line numbers; errors name file, line, key and remedy."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from txlbench.errors import MissingPlugin, UserError, suggestion

Keys = tuple[str | int, ...]
Raw = dict[str, Any]
"""A mapping as YAML gave it, not validated yet."""
T = TypeVar("T", bound=BaseModel)

LARGEST_FILE = 4 << 20
"""Bytes; the parser in Python takes a second for each hundred kilobytes."""
DEEPEST = 40
OTHER_NAMES = {
    **dict.fromkeys(("lr", "learning_rate", "max_lr"), "train.lr"),
    **dict.fromkeys(("max_step", "steps", "max_steps", "n_steps", "epochs"), "train.max_step"),
    **dict.fromkeys(("warmup", "warmup_steps", "warmup_step"), "train.warmup_step"),
    **dict.fromkeys(("batch_size", "batch", "bsz"), "train.batch_size"),
    **dict.fromkeys(("tgt_len", "seq_len", "block_size", "segment_length"), "train.tgt_len"),
    **dict.fromkeys(("mem_len", "memory", "memory_length"), "train.mem_len"),
    **dict.fromkeys(("recurrence", "recurrent"), "train.recurrence"),
    **dict.fromkeys(("grad_clip", "clip", "clip_grad"), "train.clip"),
    **dict.fromkeys(("n_layer", "layers", "n_layers", "num_layers"), "model.n_layer"),
    **dict.fromkeys(("n_head", "heads", "n_heads", "num_heads"), "model.n_head"),
    **dict.fromkeys(("d_model", "hidden_size", "n_embd", "width"), "model.d_model"),
    **dict.fromkeys(("encoding", "position_encoding", "positions"), "model.encoding"),
    **dict.fromkeys(("dropout", "drop"), "model.dropout"),
    **dict.fromkeys(("attention_lengths", "attention_length"), "evaluate.attention_lengths"),
}
"""Keys that people write, outside their section or by a name from elsewhere, and what they mean."""
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, ten times as fast, where PyYAML was built with it."""


class _Loader(_Base):  # type: ignore[misc]
    """Plain data only, with floats as people write them: YAML 1.1 reads 1e-3 as a string."""


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads: strings that it would take for floats are quoted."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$"),
        list("-+0123456789"),
    )


@dataclass(frozen=True)
class Document:
    """Parsed YAML and where each key stands.

    Attributes:
        source: the file's name, for messages.
        value: mappings, lists and scalars.
        lines: line number of each key path, from 1.
        texts: each scalar as it is written.
        overridden: keys that `--set` has given in place of the file.
    """

    source: str
    value: Any
    lines: dict[Keys, int] = field(default_factory=dict)
    texts: dict[Keys, str] = field(default_factory=dict)
    overridden: frozenset[Keys] = frozenset()

    def where(self, keys: Keys = ()) -> str:
        """`--set`, or `file:line`, of the longest known part of `keys`."""
        for end in range(len(keys), -1, -1):
            if keys[:end] in self.overridden:
                return "--set"
            if keys[:end] in self.lines:
                return f"{self.source}:{self.lines[keys[:end]]}"
        return self.source

    def error(self, keys: Keys, problem: str, remedy: str = "") -> UserError:
        """A UserError that points at `keys`."""
        name = ".".join(map(str, keys))
        return UserError(f"{self.where(keys)}: {name + ': ' if name else ''}{problem}", remedy)


def _record_places(node: yaml.Node, keys: Keys, document: Document) -> None:
    """Notes line and text of everything below `node`; refuses what YAML 1.1 reads unexpectedly.

    That is: keys given twice or that are no text for YAML, and numbers of other bases.
    """
    document.lines.setdefault(keys, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = str(key_node.value)
            below = (*keys, key)
            document.lines[below] = key_node.start_mark.line + 1
            if key in seen:
                raise document.error(below, "given twice", "keep one of them")
            if isinstance(key_node, yaml.ScalarNode) and key_node.tag != TEXT_TAG:
                raise document.error(below, "no text for YAML", f"put it in quotes: '{key}'")
            seen.add(key)
            _record_places(value_node, below, document)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _record_places(item, (*keys, index), document)
    else:
        document.texts[keys] = node.value
        if node.tag in NUMBER_TAGS and OTHER_BASE.match(node.value):
            raise document.error(
                keys,
                f"{node.value} found, which YAML reads to base 8 or 60",
                "write a number without leading zeros, and a text in quotes",
            )


TEXT_TAG = "tag:yaml.org,2002:str"
NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
OTHER_BASE = re.compile(r"[-+]?(0[0-7_]+$|[\d_]+:)")


def _refuse_growth(text: str, source: str, loader: Any = _Loader) -> None:
    """Refuses what a few bytes can make large or slow: aliases and deep nesting."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        place = f"{source}:{event.start_mark.line + 1}" if event.start_mark else source
        if isinstance(event, yaml.AliasEvent):
            raise UserError(f"{place}: YAML aliases are not allowed", "write the value out")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise UserError(f"{place}: nested more than {DEEPEST} deep", "mend the syntax")


def parse_yaml(text: str, source: str) -> Document:
    """Parses one YAML document of plain data; aliases and tags are refused.

    Raises:
        UserError: with file and line, if the text is not such a document.
    """
    try:
        try:
            _refuse_growth(text, source)
            node, value = _node_and_value(text)
        except yaml.YAMLError:  # the parser in Python names causes and lines better
            _refuse_growth(text, source, yaml.SafeLoader)
            raise
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{source}{line}: not YAML: {error.problem}", "mend the syntax") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{source}: not YAML: {reason}", "mend the syntax") from error
    document = Document(source, value)
    if node is not None:
        _record_places(node, (), document)
    return document


def _node_and_value(text: str) -> tuple[yaml.Node | None, Any]:
    """The parsed tree of the only document, and the plain data that it stands for."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return node, None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def dump_yaml(value: Any, in_a_line: bool = False) -> str:
    """Plain data as text that `parse_yaml` reads back as the same data, keys in their order."""
    width = math.inf if in_a_line else 80
    return yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=in_a_line, width=width
    )


def read_yaml(path: Path) -> Document:
    """Parses the YAML file at `path`; UserError if it is missing, unreadable or not UTF-8."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise UserError(f"{path}: more than {LARGEST_FILE:,} bytes", "is it the right file?")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file", "give the path of an experiment file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error.reason})", "save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "give a readable experiment file") from error
    return parse_yaml(text, str(path))


def set_dotted(target: Raw, dotted: str, value: Any, place: str) -> None:
    """Sets `a.b.c` in nested mappings, making those that are missing.

    Args:
        place: where the setting was given, for messages.

    Raises:
        UserError: if a part on the way is not a mapping.
    """
    *parents, last = dotted.split(".")
    for index, name in enumerate(parents):
        if name == "corpus" and isinstance(target.get(name), str):
            target[name] = {"name": target[name]}
        below = target.setdefault(name, {})
        if not isinstance(below, dict):
            above = ".".join(parents[: index + 1])
            raise UserError(
                f"{place}: {dotted}: {above} is {below!r}, not a section", f"drop .{last}"
            )
        target = below
    target[last] = value


def key_remedy(name: str, known: Iterable[str]) -> str:
    """The remedy for an unknown key: the one that is meant, or the nearest spelling."""
    meant = OTHER_NAMES.get(name.lower())
    return f"did you mean '{meant}'?" if meant else suggestion(name, known)


def _describe(error: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    """Problem and remedy of one validation error, in one line."""
    found, context = error["input"], error.get("ctx", {})
    if error["type"] == "extra_forbidden":
        fields = _fields_at(model, error["loc"][:-1])
        return "unknown key", key_remedy(str(error["loc"][-1]), fields)
    if error["type"] == "missing":
        return "missing", "add it"
    if error["type"] == "value_error":
        return str(context["error"]), ""
    if error["type"] == "model_type":
        return f"{found!r} is not a section", "write keys below it"
    if isinstance(found, float) and not math.isfinite(found):
        return f"{found!r} found", "give a finite number"
    rule = error["msg"][0].lower() + error["msg"][1:]
    return f"{found!r} found", rule.replace("tuple", "list").replace("dictionary", "mapping")


def _fields_at(model: type[BaseModel], keys: Keys) -> list[str]:
    """The names allowed in the section that `keys` lead to."""
    for key in keys:
        declared = model.model_fields.get(str(key))
        if declared is None:
            continue  # the index of a list
        for part in (declared.annotation, *get_args(declared.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                model = part
    return list(model.model_fields)


def validate(model: type[T], value: Any, document: Document, context: str = "") -> T:
    """Validates `value`; the first error is raised with its place in `document`.

    Args:
        context: names the row for errors that come from its settings, e.g. " (row 'Shaw')".

    Raises:
        UserError: file, line, key, value found and what is allowed, in one line.
    """
    try:
        return model.model_validate(value)
    except ValidationError as errors:
        raise refusal(model, errors, document, context) from None


def refusal(
    model: type[BaseModel], errors: ValidationError, document: Document, context: str = ""
) -> UserError:
    """The first of `errors` in one line, with its place in `document`; see `validate`."""
    error = errors.errors()[0]
    problem, remedy = _describe(error, model)
    if error["type"] == "string_type" and error["loc"] in document.texts:
        text = document.texts[error["loc"]]
        problem, remedy = f"{text} found", f"{remedy}: put it in quotes, '{text}'"
    more = f" (and {errors.error_count() - 1} more)" if errors.error_count() > 1 else ""
    refused = document.error(error["loc"], problem + context + more, remedy)
    if isinstance(error.get("ctx", {}).get("error"), MissingPlugin):
        return MissingPlugin(refused.problem, refused.remedy)
    return refused
