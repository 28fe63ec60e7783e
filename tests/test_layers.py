"""The shape of the package: which way imports go, how large modules are, what names occur once."""

import ast
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import txlbench

ROOT = Path(txlbench.__file__).parent

LAYERS = [
    ["errors"],
    ["files", "seeding"],
    ["config"],
    ["records", "machine"],
    ["world"],
    ["data", "models", "tracking", "reporting"],
    ["training", "evaluation"],
    ["runs", "commands"],
    ["cli"],
    ["api", "__main__"],
]
"""Lowest first. A module imports from lower layers and from its own package, nothing else:
records read and write configurations, so they stand on config."""

LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}

HEAVY = {
    "numpy": {part for part in LEVEL if part != "config"},
    "torch": {
        *("seeding", "machine", "world"),
        *("data", "models", "training", "evaluation", "runs", "commands"),
    },
    "pandas": {"reporting", "api"},
    "matplotlib": {"reporting"},
    "mlflow": {"tracking"},
    "ray": {"runs"},
    "submitit": {"runs"},
    "optuna": {"runs"},
    "transformers": {"models", "commands"},
    "lm_eval": {"commands"},
    "click": {"cli"},
    "rich": {"cli", "data", "api"},
}
"""The parts that may import a library at all."""

ONE_FILE = ["mlflow", "ray", "submitit", "optuna", "lm_eval"]
LAZY = {
    "numpy": {"seeding", "cli"},
    "torch": {"seeding", "machine"},
    "rich": {"data", "api"},
    "pandas": {"api"},
    "transformers": {"models", "commands"},
}
"""Parts that may import a library inside functions only, so that the command line is quick."""


@dataclass(frozen=True)
class Import:
    """One import statement.

    Attributes:
        lazy: it stands in a function, or serves type hints only.
        typing: it serves type hints only.
    """

    file: Path
    line: int
    module: str
    lazy: bool
    typing: bool

    @property
    def part(self) -> str:
        """The layer's part that the importing file belongs to."""
        return self.file.relative_to(ROOT).parts[0].removesuffix(".py")

    @property
    def imported_part(self) -> str | None:
        """The part of this package that is imported, if it is one."""
        package, _, rest = self.module.partition(".")
        return rest.split(".")[0] or None if package == "txlbench" else None

    @property
    def library(self) -> str:
        return self.module.split(".")[0]

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT.parent)}:{self.line} imports {self.module}"


def _imports_below(
    node: ast.AST, file: Path, lazy: bool = False, typing: bool = False
) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            names = [name.name for name in child.names]
        elif isinstance(child, ast.ImportFrom):
            package = "." * child.level + (child.module or "")
            full = [f"{package}.{name.name}" for name in child.names]
            names = [name if name in MODULES else package for name in full]
        else:
            deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            hints = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            yield from _imports_below(child, file, lazy or deferred or hints, typing or hints)
            continue
        yield from (Import(file, child.lineno, name, lazy, typing) for name in dict.fromkeys(names))


def _name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


FILES = sorted(ROOT.rglob("*.py"))
MODULES = {_name_of(file): file for file in FILES if file.name != "__init__.py"}
TREES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in MODULES.values()}
IMPORTS = [found for file, tree in TREES.items() for found in _imports_below(tree, file)]
LINES = {name: len(file.read_text(encoding="utf-8").splitlines()) for name, file in MODULES.items()}

MOST_MODULES = 255
MEDIAN_LINES = (110, 180)
FEWEST_LINES = 40
"""A shorter module needs more than one importer."""
VERB_LAYERS = {"cli", "commands", "runs", "reporting"}
"""Rooms in which a verb may have a module each of the same name."""


def listed(wrong: list[Import]) -> str:
    return "\n".join(map(str, wrong))


def test_every_part_of_the_package_has_its_layer():
    parts = {file.relative_to(ROOT).parts[0].removesuffix(".py") for file in FILES}
    assert parts - {"__init__"} == set(LEVEL)


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


def test_no_imports_go_in_a_circle():
    """Type hints aside, also not where a function imports when it is called."""
    needs = defaultdict(set)
    for found in IMPORTS:
        if found.module in MODULES and not found.typing:
            needs[_name_of(found.file)].add(found.module)
    circle = _circle(needs)
    assert not circle, " -> ".join(circle)


def _circle(needs: Mapping[str, set[str]]) -> list[str]:
    """The modules of one import circle, the first one again at its end; empty if there is none."""
    done: set[str] = set()

    def below(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for needed in sorted(needs.get(name, ())):
            if circle := below(needed, [*path, name]):
                return circle
        done.add(name)
        return []

    return next(filter(None, (below(name, []) for name in sorted(needs))), [])


def test_a_circle_is_found():
    assert _circle({"a": {"b"}, "b": {"c", "d"}, "d": {"b"}}) == ["b", "d", "b"]
    assert _circle({"a": {"b", "c"}, "b": {"c"}}) == []


def test_modules_are_few_and_neither_tiny_nor_huge():
    assert len(MODULES) <= MOST_MODULES
    assert MEDIAN_LINES[0] <= statistics.median(LINES.values()) <= MEDIAN_LINES[1]


def test_a_short_module_has_several_importers():
    importers = defaultdict(set)
    for found in IMPORTS:
        importers[found.module].add(found.file)
    assert sum(len(importers[name]) for name in MODULES) > 200
    short = [name for name, lines in LINES.items() if lines < FEWEST_LINES]
    wrong = {name: [str(f) for f in importers[name]] for name in short if len(importers[name]) == 1}
    assert not wrong, f"merge each into its only importer: {wrong}"


def test_a_name_of_a_module_is_repeated_for_the_layers_of_one_verb_only():
    rooms = defaultdict(list)
    for name in MODULES:
        *folders, last = name.split(".")[1:]
        rooms[last].append(folders[0] if folders else "")
    wrong = {
        name: found
        for name, found in rooms.items()
        if len(found) > 1 and (len(set(found)) < len(found) or not set(found) <= VERB_LAYERS)
    }
    assert not wrong, wrong


def test_no_two_public_classes_have_one_name():
    places = defaultdict(list)
    for file, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{file.relative_to(ROOT.parent)}:{node.lineno}")
    assert len(places) > 100
    wrong = {name: found for name, found in places.items() if len(found) > 1}
    assert not wrong, wrong


@pytest.mark.parametrize("library", HEAVY)
def test_a_heavy_library_is_imported_where_it_belongs(library: str):
    using = [found for found in IMPORTS if found.library == library]
    wrong = [found for found in using if found.part not in HEAVY[library]]
    deferred = LAZY.get(library, set())
    wrong += [found for found in using if found.part in deferred and not found.lazy]
    assert not wrong, listed(wrong)
    if library in ONE_FILE:
        assert len({found.file for found in using}) <= 1, listed(using)


def test_package_files_are_empty_but_the_first():
    assert [file for file in FILES if file.name == "__init__.py" and file.read_text()] == [
        ROOT / "__init__.py"
    ]
    folders = {file.parent for file in FILES}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


def test_help_imports_nothing_heavy():
    command = [sys.executable, "-X", "importtime", "-m", "txlbench.cli.main", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT.parent)
    assert "Usage:" in done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in loaded
    assert not loaded & {"torch", "mlflow", "pandas", "matplotlib", "numpy", "pydantic", "ray"}


MODEL_VERBS = """
import sys
from pathlib import Path
from txlbench.commands import evaluate, generate, load_model
from txlbench.config.model import ModelConfig
from txlbench.models.factory import build_model, skeleton
config = ModelConfig(n_layer=1, d_model=8, n_head=2)
assert skeleton(Path("x"), config, 9).keys() == build_model(config, 9).state_dict().keys()
print(*sys.modules)
"""


def test_a_model_is_loaded_without_the_compiler():
    """torch._dynamo takes as long to import as PyTorch itself."""
    command = [sys.executable, "-c", MODEL_VERBS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT.parent)
    assert "torch" in done.stdout.split()
    assert not {"torch._dynamo", "mlflow", "pandas", "matplotlib"} & set(done.stdout.split())


@pytest.mark.parametrize("words", [["status", "."], ["schema"]])
def test_what_needs_no_model_loads_nothing_heavy(words, tmp_path):
    (tmp_path / "spec.yaml").write_text("name: trial\ncorpus: enwiki-sample\n")
    command = [sys.executable, "-X", "importtime", "-m", "txlbench", *words]
    path = {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env=path
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "txlbench.config.grid" in loaded
    assert not loaded & {"torch", "mlflow", "pandas", "matplotlib", "ray"}
