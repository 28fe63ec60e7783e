"""Imports go downward only, and heavy libraries stay where they belong."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import txlbench

ROOT = Path(txlbench.__file__).parent

LAYERS = [
    ["errors"],
    ["registry", "files", "seeding"],
    ["config"],
    ["records", "machine"],
    ["data", "models", "tracking", "reporting"],
    ["training", "evaluation"],
    ["runs", "commands"],
    ["cli"],
]
"""Lowest first. A module imports from lower layers and from its own package, nothing else:
records read and write configurations, so they stand on config."""

LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}

HEAVY = {
    "numpy": {part for part in LEVEL if part != "config"},
    "torch": {"seeding", "machine", "data", "models", "training", "evaluation", "runs", "commands"},
    "pandas": {"reporting"},
    "matplotlib": {"reporting"},
    "mlflow": {"tracking"},
    "ray": {"runs"},
    "click": {"cli"},
    "rich": {"cli"},
}
"""The parts that may import a library at all."""

ONE_FILE = ["mlflow", "ray"]
LAZY = {"numpy": {"seeding", "cli"}, "torch": {"seeding", "machine"}}
"""Parts that may import a library inside functions only, so that the command line is quick."""


@dataclass(frozen=True)
class Import:
    """One import statement; `lazy` if it stands in a function or serves type hints only."""

    file: Path
    line: int
    module: str
    lazy: bool

    @property
    def part(self) -> str:
        """The layer's part that the importing file belongs to."""
        return self.file.relative_to(ROOT).parts[0].removesuffix(".py")

    @property
    def imported_part(self) -> str | None:
        """The part of this package that is imported, if it is one."""
        package, _, rest = self.module.partition(".")
        return rest.split(".")[0] if package == "txlbench" else None

    @property
    def library(self) -> str:
        return self.module.split(".")[0]

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT.parent)}:{self.line} imports {self.module}"


def _imports_below(node: ast.AST, file: Path, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(file, child.lineno, name.name, lazy) for name in child.names)
        elif isinstance(child, ast.ImportFrom):
            module = "." * child.level + (child.module or "")
            names = [f"{module}.{name.name}" for name in child.names]
            yield from (
                Import(file, child.lineno, name, lazy)
                for name in (names if module == "txlbench" else [module])
            )
        else:
            deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            yield from _imports_below(child, file, lazy or deferred or typing)


FILES = sorted(ROOT.rglob("*.py"))
IMPORTS = [
    found
    for file in FILES
    if file.parent != ROOT or file.name != "__init__.py"
    for found in _imports_below(ast.parse(file.read_text(encoding="utf-8")), file, lazy=False)
]


def listed(wrong: list[Import]) -> str:
    return "\n".join(map(str, wrong))


def test_every_part_of_the_package_has_its_layer():
    parts = {file.relative_to(ROOT).parts[0].removesuffix(".py") for file in FILES} - {"__init__"}
    assert parts == set(LEVEL)


def test_imports_are_absolute():
    wrong = [found for found in IMPORTS if found.module.startswith(".")]
    assert not wrong, listed(wrong)


def test_imports_go_downward_only():
    def goes_down(found: Import) -> bool:
        target = found.imported_part
        return target in (None, found.part) or LEVEL[str(target)] < LEVEL[found.part]

    assert len(IMPORTS) > 100
    wrong = [found for found in IMPORTS if not goes_down(found)]
    assert not wrong, listed(wrong)


@pytest.mark.parametrize("library", HEAVY)
def test_a_heavy_library_is_imported_where_it_belongs(library: str):
    using = [found for found in IMPORTS if found.library == library]
    wrong = [found for found in using if found.part not in HEAVY[library]]
    deferred = LAZY.get(library, set())
    wrong += [found for found in using if found.part in deferred and not found.lazy]
    assert not wrong, listed(wrong)
    if library in ONE_FILE:
        assert len({found.file for found in using}) <= 1, listed(using)


def test_package_files_are_empty():
    assert not [file for file in FILES if file.name == "__init__.py" and file.read_text()]
    folders = {file.parent for file in FILES}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


def test_help_imports_nothing_heavy():
    command = [sys.executable, "-X", "importtime", "-m", "txlbench.cli.main", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT.parent)
    assert "Usage:" in done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in loaded
    assert not loaded & {"torch", "mlflow", "pandas", "matplotlib", "numpy", "pydantic", "ray"}
