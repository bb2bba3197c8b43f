"""The jobs of a benchmark file: rows by seeds of each section, every job a whole recipe.

Rows of several sections that come to the same recipe share one job.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import Field, SerializeAsAny, model_validator

from squid.config import Config, EvaluatedSplit, nearest, override, parse, read_toml
from squid.errors import ConfigError
from squid.evaluation.record import Place, Placed
from squid.methods import METHODS
from squid.recipe import Recipe


class Change(Config):
    """What differs from a method's defaults, and in how it is trained."""

    method: dict[str, Any] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)
    seeds: int | None = Field(None, ge=1)
    """How many; what is nearer to a job wins: a section's change, the section, the row, the
    file."""


class Row(Change):
    """A row, or what one section changes in it."""

    title: str = ""
    """The row's name in tables; the method's when left out."""
    recipe: str | None = None
    """A recipe file in the folder of the benchmark's, whose tables come first; not its data. One in
    a section's change takes the place of the row's; '' for none."""


class Section(Change):
    """One dataset, and what changes there for every row, or for one of them."""

    title: str = ""
    """Its name in tables."""
    data: dict[str, Any]
    rows: tuple[str, ...] = ()
    """All when left out."""
    vary: str = ""
    """A recipe key, such as `method.k`: each row is trained with each of the `values`, and the
    section is also a curve."""
    values: tuple[int | float, ...] = ()
    change: dict[str, Row] = Field(default_factory=dict)
    """By the name of a row, or of a row with its value, such as `full-k-5`."""

    @model_validator(mode="after")
    def _vary_something(self) -> Self:
        if bool(self.vary) != bool(self.values):
            raise ValueError("vary and values belong together; give both or neither.")
        return self


class Benchmark(Config):
    """A benchmark file. A row is the method of its name, unless its `method` names another."""

    title: str = ""
    seeds: int = Field(3, ge=1)
    recipe: str | None = None
    """A recipe file for every row that names none; else a row is the method of its name."""
    train: dict[str, Any] = Field(default_factory=dict)
    """For every row."""
    rows: dict[str, Row]
    sections: dict[str, Section]


class Job(Placed):
    """One row and seed of a section: a whole recipe, and the run folder it is trained in."""

    recipe: SerializeAsAny[Recipe]
    folder: Path
    split: EvaluatedSplit = "test"
    command: str
    """Runs this job alone."""

    @property
    def name(self) -> str:
        return f"{self.section}/{self.row}/seed-{self.recipe.seed}"


@dataclass(frozen=True)
class Plan:
    """The jobs to run, and the tables they are for."""

    title: str
    out: Path
    jobs: tuple[Job, ...]
    rows: Mapping[str, Sequence[str]]
    """Names of the rows of each chosen section, in the order of its table."""

    @property
    def sections(self) -> tuple[str, ...]:
        return tuple(self.rows)

    def of(self, section: str) -> tuple[Job, ...]:
        """The jobs of a section, each as it stands there."""
        placed = [one for job in self.jobs for one in job.placed() if one.section == section]
        # A job of several sections is where the first of them has it: here it takes its own place.
        return tuple(sorted(placed, key=lambda job: self.rows[section].index(job.row)))


def plan_benchmark(
    path: Path,
    out: Path,
    *,
    sections: Sequence[str] = (),
    rows: Sequence[str] = (),
    seeds: int | None = None,
    first_seed: int = 0,
    settings: Sequence[str] = (),
    split: EvaluatedSplit = "test",
) -> Plan:
    """The jobs of a benchmark file; `sections` and `rows` choose some by name."""
    values = read_toml(path)
    if "method" in values:
        raise ConfigError(f"{path} holds a recipe; train it with: squid train {path}")
    benchmark = parse(Benchmark, values, str(path))
    # One recipe per entry, parsed once: its seeds differ in nothing else.
    recipes = {
        entry: _recipe(benchmark, entry, settings, path)
        for name in _chosen(sections, benchmark.sections, "section")
        for entry in _entries(benchmark, name, rows)
    }
    if not recipes:
        raise ConfigError(f"No section of {path} has the row {', '.join(rows)}.")
    # The command repeats what was asked for, so that it makes this very job.
    base = ["squid", "benchmark", str(path)]
    base += [word for setting in settings for word in ("--set", setting)]
    base += [] if split == "test" else ["--split", split]
    jobs = [
        Job(
            **dict(_place(benchmark, entry)),
            recipe=recipe.model_copy(update={"seed": seed}),
            folder=out / entry.section / entry.name / f"seed-{seed}",
            split=split,
            command=shlex.join([*base, *entry.options, "--seeds", "1", "--first-seed", str(seed)]),
        )
        for entry, recipe in recipes.items()
        for seed in range(first_seed, first_seed + (seeds or _seeds(benchmark, entry)))
    ]
    table: dict[str, list[str]] = {}
    for entry in recipes:
        table.setdefault(entry.section, []).append(entry.name)
    return Plan(benchmark.title, out, tuple(_shared(jobs)), table)


SAME_NUMBERS = {"compile", "cuda_graph", "save_minutes"}
"""Keys of `train` that change how fast a training is, not what it learns."""


def identity(recipe: Recipe, split: EvaluatedSplit) -> str:
    """Equal for jobs of which one serves for all, on whichever machine it was run."""
    content = recipe.model_dump(mode="json", exclude={"title": True, "train": SAME_NUMBERS})
    # Where files lie does not matter: a published dataset has one content, weights have a name.
    if recipe.data.name != "folder":
        content["data"].pop("root", None)
    if "backbone" in content["method"]:
        backbone = content["method"]["backbone"]
        backbone["weights"] = Path(backbone["weights"]).name
    return json.dumps([split, content], sort_keys=True)


def _shared(jobs: Iterable[Job]) -> list[Job]:
    """One job for each identity, in the places of all that have it."""
    found: dict[str, Job] = {}
    for job in jobs:
        key = identity(job.recipe, job.split)
        first = found.get(key)
        found[key] = job if first is None else first.model_copy(
            update={"also": (*first.also, *job.places)}
        )  # fmt: skip
    return list(found.values())


@dataclass(frozen=True)
class _Entry:
    """A row of a section; where the section is a curve, at one of its values."""

    section: str
    row: str
    vary: str = ""
    value: int | float | None = None

    @property
    def name(self) -> str:
        return self.row if self.value is None else f"{self.row}-{self.key}-{self.value:g}"

    @property
    def key(self) -> str:
        """The last part of the varied key."""
        return self.vary.rpartition(".")[2]

    @property
    def options(self) -> list[str]:
        """What chooses it on the command line."""
        return ["--sections", self.section, "--rows", self.name]


def _entries(benchmark: Benchmark, section: str, wanted: Sequence[str]) -> list[_Entry]:
    """The entries of a section that are wanted, by the row's name or by their own."""
    chosen = benchmark.sections[section]
    rows = _chosen(chosen.rows, benchmark.rows, "row")
    found = [
        _Entry(section, row, chosen.vary, value)
        for row in rows
        for value in chosen.values or (None,)
    ]
    # Names of other sections' entries are no mistake, names of none are.
    known = {word for entry in _all_entries(benchmark) for word in (entry.row, entry.name)}
    wanted = _chosen(wanted, dict.fromkeys([*benchmark.rows, *known]), "row")
    for name in chosen.change:
        if name not in {word for entry in found for word in (entry.row, entry.name)}:
            raise ConfigError(f"Section '{section}' changes '{name}', which is no row of it.")
    return [entry for entry in found if entry.row in wanted or entry.name in wanted]


def _all_entries(benchmark: Benchmark) -> Iterator[_Entry]:
    for name, section in benchmark.sections.items():
        for row in section.rows or benchmark.rows:
            for value in section.values or (None,):
                yield _Entry(name, row, section.vary, value)


def _changes(benchmark: Benchmark, entry: _Entry) -> list[Row]:
    """What the section changes in an entry's row, and then in the entry itself."""
    change = benchmark.sections[entry.section].change
    return [change[name] for name in dict.fromkeys((entry.row, entry.name)) if name in change]


def _place(benchmark: Benchmark, entry: _Entry) -> Place:
    method = METHODS.get(entry.row)
    # The nearest title wins: the section's, the row's, the method's.
    titles = [change.title for change in reversed(_changes(benchmark, entry))]
    titles += [benchmark.rows[entry.row].title, method.title if method else entry.row]
    title = next(filter(None, titles))
    place = Place(
        section=entry.section,
        heading=benchmark.sections[entry.section].title,
        row=entry.name,
        title=title,
    )
    if entry.value is None:
        return place
    return place.model_copy(
        update={
            "title": f"{title}, {entry.key.replace('_', ' ')} {entry.value:g}",
            "axis": entry.vary,
            "value": float(entry.value),
            "series": title,
        }
    )


def _seeds(benchmark: Benchmark, entry: _Entry) -> int:
    """How many: what is nearer to the entry wins."""
    nearest_first = [*reversed(_changes(benchmark, entry)), benchmark.sections[entry.section]]
    given = [one.seeds for one in (*nearest_first, benchmark.rows[entry.row])]
    return next((count for count in given if count is not None), benchmark.seeds)


def _recipe(benchmark: Benchmark, entry: _Entry, settings: Sequence[str], path: Path) -> Recipe:
    section, own = benchmark.sections[entry.section], benchmark.rows[entry.row]
    changes = _changes(benchmark, entry)
    # A recipe that a section's change names takes the place of the row's own.
    own_recipe = benchmark.recipe if own.recipe is None else own.recipe
    changed = next((one.recipe for one in changes if one.recipe), None)
    named = (None if changed else own_recipe, changed)
    files = [read_toml(path.parent / recipe) if recipe else {} for recipe in named]
    layers = [{"method": {} if own_recipe else {"name": entry.row}, "train": benchmark.train}]
    layers += [files[0], vars(own), vars(section), files[1]]
    layers += map(vars, changes)  # later ones win
    # Other tables come whole from the recipe files; `method` and `train` are joined key by key.
    values = {
        **files[0],
        **files[1],
        "title": f"{benchmark.title}: {entry.name} on {entry.section}".removeprefix(": "),
        "data": section.data,
        **{table: _joined(layers, table) for table in ("method", "train")},
    }
    varied = [] if entry.value is None else [f"{entry.vary}={entry.value}"]
    source = f"{path}, {entry.section}/{entry.name}"
    return parse(Recipe, override(values, [*settings, *varied]), source)


def _joined(layers: Sequence[Mapping[str, Any]], table: str) -> dict[str, Any]:
    return {key: value for layer in layers for key, value in layer.get(table, {}).items()}


def _chosen(wanted: Sequence[str], known: Mapping[str, Any], what: str) -> Sequence[str]:
    """`wanted`, or all; a word that is not known is refused."""
    for word in wanted:
        if word not in known:
            raise ConfigError(f"There is no {what} '{word}'; {nearest(word, known)}")
    return wanted or list(known)
