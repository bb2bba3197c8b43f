"""The jobs of a benchmark file: rows by seeds of each section, every job a whole recipe."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, SerializeAsAny

from squid.config import Config, EvaluatedSplit, nearest, override, parse, read_toml
from squid.errors import ConfigError
from squid.methods import METHODS
from squid.recipe import Recipe


class Change(Config):
    """What differs from a method's defaults, and in how it is trained."""

    method: dict[str, Any] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)


class Row(Change):
    """A row, or what one section changes in it."""

    title: str = ""
    """The row's name in tables; the method's when left out."""
    recipe: str | None = None
    """A recipe file in the folder of the benchmark's, whose tables come first; not its data. One in
    a section's change takes the place of the row's."""


class Section(Change):
    """One dataset, and what changes there for every row, or for one of them."""

    data: dict[str, Any]
    rows: tuple[str, ...] = ()
    """All when left out."""
    change: dict[str, Row] = Field(default_factory=dict)


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


class Job(Config):
    """One row and seed of a section: a whole recipe, and the run folder it is trained in."""

    section: str
    row: str
    title: str
    """The row's name in tables."""
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
    """Jobs in the order of their table."""

    title: str
    out: Path
    jobs: tuple[Job, ...]

    @property
    def sections(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(job.section for job in self.jobs))

    def of(self, section: str) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.section == section)


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
    # One recipe per row, parsed once: its seeds differ in nothing else.
    recipes = {
        (name, row): _recipe(benchmark, name, row, settings, path)
        for name in _chosen(sections, benchmark.sections, "section")
        for row in _rows(benchmark, name, rows)
    }
    if not recipes:
        raise ConfigError(f"No section of {path} has the row {', '.join(rows)}.")
    span = range(first_seed, first_seed + (seeds or benchmark.seeds))
    # The command repeats what was asked for, so that it makes this very job.
    base = ["squid", "benchmark", str(path)]
    base += [word for setting in settings for word in ("--set", setting)]
    base += [] if split == "test" else ["--split", split]
    jobs = [
        Job(
            section=section,
            row=row,
            title=_title(benchmark, section, row),
            recipe=recipe.model_copy(update={"seed": seed}),
            folder=out / section / row / f"seed-{seed}",
            split=split,
            command=shlex.join([*base, "--sections", section, "--rows", row, *_seed_options(seed)]),
        )
        for (section, row), recipe in recipes.items()
        for seed in span
    ]
    return Plan(benchmark.title, out, tuple(jobs))


def _title(benchmark: Benchmark, section: str, row: str) -> str:
    # The nearest title wins: the section's, the row's, the method's.
    change = benchmark.sections[section].change.get(row, Row())
    own = benchmark.rows.get(row, Row())
    method = METHODS.get(row)
    return change.title or own.title or (method.title if method else row)


def _recipe(
    benchmark: Benchmark, name: str, row: str, settings: Sequence[str], path: Path
) -> Recipe:
    section = benchmark.sections[name]
    own, change = benchmark.rows.get(row, Row()), section.change.get(row, Row())
    # A recipe that a section's change names takes the place of the row's own.
    own_recipe = own.recipe or benchmark.recipe
    named = (None if change.recipe else own_recipe, change.recipe)
    files = [{} if recipe is None else read_toml(path.parent / recipe) for recipe in named]
    layers = [{"method": {} if own_recipe else {"name": row}, "train": benchmark.train}]
    layers += [files[0], vars(own), vars(section), files[1], vars(change)]  # later ones win
    # Other tables come whole from the recipe files; `method` and `train` are joined key by key.
    values = {
        **files[0],
        **files[1],
        "title": f"{benchmark.title}: {row} on {name}".removeprefix(": "),
        "data": section.data,
        **{table: _joined(layers, table) for table in ("method", "train")},
    }
    return parse(Recipe, override(values, settings), f"{path}, {name}/{row}")


def _joined(layers: Sequence[Mapping[str, Any]], table: str) -> dict[str, Any]:
    return {key: value for layer in layers for key, value in layer.get(table, {}).items()}


def _rows(benchmark: Benchmark, section: str, rows: Sequence[str]) -> Iterator[str]:
    wanted = _chosen(rows, benchmark.rows, "row")
    for row in _chosen(benchmark.sections[section].rows, benchmark.rows, "row"):
        if row in wanted:
            yield row


def _chosen(wanted: Sequence[str], known: Mapping[str, Any], what: str) -> Sequence[str]:
    """`wanted`, or all; a word that is not known is refused."""
    for word in wanted:
        if word not in known:
            raise ConfigError(f"There is no {what} '{word}'; {nearest(word, known)}")
    return wanted or list(known)


def _seed_options(seed: int) -> list[str]:
    return ["--seeds", "1", "--first-seed", str(seed)]
