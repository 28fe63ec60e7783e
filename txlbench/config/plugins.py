"""Plug-ins: a user's own encodings, kinds of model and corpora, known by name like those shipped.

A plug-in is a Python file given on the command line (`--plugin FILE.py`), which registers what it
has as it is loaded, or an installed package with entry points, each an entry of the catalogue. Only
these two are ever executed: experiment files and run directories name what they need by the SHA-256
of its source, which is part of a run's identity, and never load it.
"""

import dataclasses
import hashlib
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from txlbench.errors import MissingPlugin, UserError

EntryT = TypeVar("EntryT", bound=Any)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Of an entry: it becomes a part of file names, and is a word of files and messages."""
LARGEST_FILE = 100_000
"""Bytes: a plug-in travels with each job, on one line."""


@dataclasses.dataclass(frozen=True)
class PluginFile:
    """A plug-in's source, as read once: whoever runs it elsewhere runs the same.

    Attributes:
        path: absolute; names it in messages, and is not read again.
    """

    path: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


_loaded: dict[str, PluginFile] = {}
_modules: dict[str, ModuleType] = {}
_source: list[str] = []
"""SHA-256 of what is being loaded."""
_catalogues: list["Catalogue[Any]"] = []


class Catalogue(dict[str, EntryT]):
    """Entries by name: those shipped, those that plug-ins registered, and installed ones.

    An installed package is imported when its name is first asked for.

    Args:
        group: the group of entry points, `txlbench.encodings` for example.
        noun: what an entry is, in messages.
    """

    def __init__(self, group: str, noun: str, entries: Mapping[str, EntryT]) -> None:
        super().__init__(entries)
        self.group, self.noun = group, noun
        _catalogues.append(self)

    def register(self, name: str, entry: EntryT) -> None:
        """Makes an entry known by `name`, with the source of the plug-in that is being loaded.

        Raises:
            UserError: if the name stands for something else, or the name or entry is none.
        """
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            raise UserError(
                f"{self.noun} {name!r}: not a name",
                "use letters, digits, '.', '_' and '-', and begin with a letter or digit",
            )
        self._check_kind(entry, f"{self.noun} '{name}'")
        if _source:
            entry = dataclasses.replace(entry, source=_source[-1])
        if dict.setdefault(self, name, entry) != entry:
            raise UserError(f"{self.noun} '{name}' is already registered", "choose another name")

    def _check_kind(self, entry: object, what: str) -> None:
        """UserError if `entry` is not what this catalogue has."""
        kind = type(next(iter(self.values())))
        if not isinstance(entry, kind):
            raise UserError(
                f"{what}: {type(entry).__name__} found",
                f"name a {kind.__name__}, as {self.noun}s of the catalogue are",
            )
        target = getattr(entry, "target", None)
        if not isinstance(target, str | type):
            raise UserError(f"{what}: target: {target!r} found", "name a class")

    def forget(self, source: str) -> None:
        """Drops what an earlier text of a plug-in registered."""
        for name in [name for name, entry in self.items() if entry.source == source]:
            del self[name]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and self._install(name))

    def __missing__(self, name: str) -> EntryT:
        if self._install(name):
            return self[name]
        raise KeyError(name)

    def _install(self, name: str) -> bool:
        """Whether an installed package has it; it is registered then."""
        point = _entry_points(self.group).get(name)
        if point is None:
            return False
        try:
            entry = point.load()
        except (Exception, SystemExit) as error:
            raise UserError(
                f"entry point '{name}' of {self.group}: {type(error).__name__}: {error}",
                "mend or uninstall the package that has it",
            ) from error
        self._check_kind(entry, f"entry point '{name}' of {self.group}")
        file = Path(sys.modules[point.module].__file__ or "")
        _source.append(hashlib.sha256(file.read_bytes()).hexdigest())
        try:
            self.register(name, entry)
        finally:
            _source.pop()
        return True


@cache
def _entry_points(group: str) -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}


def read_plugin(path: Path) -> PluginFile:
    """Reads a plug-in without executing it.

    Raises:
        UserError: if it is no readable Python file.
    """
    if path.suffix != ".py":
        raise UserError(f"--plugin {path}: not a Python file", "give a file that ends in .py")
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin with a mark
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"--plugin {path}: {reason}", "give a readable file") from error
    if len(text.encode()) > LARGEST_FILE:
        raise UserError(
            f"--plugin {path}: larger than {LARGEST_FILE:,} bytes",
            "install it as a package with entry points",
        )
    return PluginFile(str(path.resolve()), text)


def load_plugin(plugin: PluginFile) -> ModuleType:
    """Executes a plug-in once, so that what it registers is known; a changed one replaces itself.

    Raises:
        UserError: naming file and line, if it fails or registers nothing.
    """
    earlier = _loaded.get(plugin.path)
    if earlier == plugin:
        return _modules[plugin.path]
    if earlier is not None:
        for catalogue in _catalogues:
            catalogue.forget(earlier.sha256)
    name = f"txlbench_plugin_{Path(plugin.path).stem}_{plugin.sha256[:12]}"
    module = ModuleType(name)
    module.__file__ = plugin.path
    sys.modules[name] = module
    _source.append(plugin.sha256)
    try:
        exec(compile(plugin.text, plugin.path, "exec"), module.__dict__)
    except UserError as error:
        raise UserError(f"{plugin.path}: {error.problem}", error.remedy) from error
    except (Exception, SystemExit) as error:
        raise _fault(error, f"{plugin.path}:{_line(error, plugin.path)}") from error
    finally:
        _source.pop()
    if not any(entry.source == plugin.sha256 for each in _catalogues for entry in each.values()):
        raise UserError(
            f"{plugin.path}: registers nothing",
            "end it in register_encoding, register_kind or register_corpus",
        )
    _loaded[plugin.path], _modules[plugin.path] = plugin, module
    return module


@contextmanager
def naming_plugin(target: object, source: str | None) -> Iterator[None]:
    """Makes exceptions in a plug-in's class one line with file, class and reason.

    Args:
        target: the class, or what names it.
        source: of the plug-in at fault, of several with a plus; None where it is none, whose
            exceptions pass as they are.

    Raises:
        UserError: for any exception but one that is clear as it is, or a lack of memory.
    """
    try:
        yield
    except (UserError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        if source is None:
            raise
        place = f"{_place(error, source)}: {getattr(target, '__name__', target)}"
        raise _fault(error, place) from error


def _place(error: BaseException, source: str) -> str:
    """The file and line of a plug-in that the error passed through, else a file that may be."""
    lines = {path: _line(error, path) for path, file in _loaded.items() if file.sha256 in source}
    passed = [f"{path}:{line}" for path, line in lines.items() if line]
    return next(iter((*passed, *lines)), "installed plug-in")


def _fault(error: BaseException, place: str) -> UserError:
    return UserError(f"{place}: {type(error).__name__}: {error}", "mend the plug-in")


def _line(error: BaseException, path: str) -> int:
    """The last line of the plug-in that the error passed through."""
    if isinstance(error, SyntaxError):
        return error.lineno or 0
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 0 for frame in reversed(frames) if frame.filename == path), 0)


def load_files(paths: Iterable[Path]) -> None:
    """Reads and executes the plug-ins of a command line."""
    for path in paths:
        load_plugin(read_plugin(path))


def loaded_plugins() -> tuple[PluginFile, ...]:
    """The files given so far, for processes that are started."""
    return tuple(_loaded.values())


def resolved_source(what: str, entry_source: str | None, recorded: str | None) -> str | None:
    """The source that a configuration records: that of the loaded entry.

    Raises:
        MissingPlugin: if the configuration was made with another one.
    """
    if recorded is not None and entry_source != recorded:
        other = "is none" if entry_source is None else f"has {entry_source[:12]}"
        raise MissingPlugin(
            f"{what} was a plug-in with source {recorded[:12]}..., the one known now {other}",
            "give --plugin with the file it was made with",
        )
    return entry_source


def unknown(what: str, remedy: str) -> MissingPlugin:
    """The refusal of a name that stands in no catalogue."""
    return MissingPlugin(f"unknown {what}", f"{remedy}; or give --plugin with the file that has it")
