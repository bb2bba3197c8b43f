"""Writes cli.md and recipe.md from the code; comparison.md, results.md, the README's tables and the
timings of `squid benchmark --list` from the files in benchmarks/results:
`python docs/reference/generate.py`."""

import inspect
import runpy
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from typer.models import OptionInfo

from squid.benchmark import BenchmarkTable, table_of_results
from squid.benchmark.summary import Line, adjusted_for, read_results
from squid.benchmark.timing import step_seconds, timings
from squid.cli import app
from squid.config import Config, Selection
from squid.data import DATASETS
from squid.data.reading import DicomReading
from squid.data.store import Augment
from squid.evaluation.confounds import LEAST
from squid.methods import METHODS
from squid.methods.base import OptimizerConfig
from squid.methods.squid.config import LossWeights
from squid.nn.backbone import BackboneConfig
from squid.recipe import Recipe

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
README = ROOT / "README.md"
JOBS = ROOT / "benchmarks/results/jobs"
STUDY = ROOT / "benchmarks/results/studies/rsna-validation-parts.json"
"""Has the times of methods without a kept result."""
MADE = "<!-- Made by docs/reference/generate.py; do not edit. -->"

RECIPE = """# Recipe keys

A recipe is a TOML file with the tables `data`, `method` and `train`. `--set method.slots=100`
overrides one key on the command line. An unknown key is an error that names the nearest one. A key
without a default must be given. The run folder holds the recipe with every default written out.

A table inside a table (an optimiser, a backbone) changes the keys it names and keeps what its
method gives the others: `generator = { lr = 3e-4 }` leaves SQUID's cosine as it is."""

TABLE, END = "<!-- Made by docs/reference/generate.py. -->", "<!-- Until here. -->"

SQUID_ROWS: list[tuple[str, Selection]] = [
    ("reference_1000", "best_epoch"),
    ("reference", "best_epoch"),
    ("ours", "final"),
]
TRIVIAL_ROWS = ("minus sharpness", "pixel kNN")
"""Rows of the README's table that are no method's own."""

METHODS_INTRO = """# Methods

The `name` in the `method` table of a recipe; [all keys](recipe.md), and [what differs from the
originals](../paper.md#methods-compared-with). PANDA, M-KD, PaDiM and IGD need pretrained weights:
`method.backbone.weights` names a local file ([get the data](../how-to/get-the-data.md)); without
them they run on a random backbone and say so. Any method can be trained several times into one
detector with `method.members`."""

INNER: dict[type, str] = {
    OptimizerConfig: "Optimiser",
    BackboneConfig: "Backbone",
    LossWeights: "Loss weights",
    DicomReading: "DICOM",
    Augment: "Augmentation",
}
"""Tables inside tables, described once."""

CLI = """# Command line

A mistake in what you asked for is one sentence on standard error and exit code 2. Ctrl-C
and SIGTERM end a command with a sentence and exit code 130; a training saves its state before."""


def recipe_page() -> str:
    """Every key of every table, method and dataset."""
    parts = [RECIPE, "## Top level", _table(_rows(Recipe, skip=("data", "method", "train")))]
    parts += ["## `train`", _section(Recipe.model_fields["train"].annotation)]
    for name, config in DATASETS.items():
        parts += [f'## `data` with `name = "{name}"`', _section(config)]
    for name, method in METHODS.items():
        parts += [f'## `method` with `name = "{name}"`', _section(method.Config)]
    for inner, title in INNER.items():
        parts += [f"## {title}", _section(inner)]
    return _page(parts)


def cli_page() -> str:
    """Every verb with its arguments and options."""
    parts = [CLI]
    for name, verb in _verbs():
        hints = typing.get_type_hints(verb, include_extras=True)
        parameters = inspect.signature(verb).parameters.values()
        rows = [_parameter(p.name, hints[p.name], p.default) for p in parameters]
        parts += [f"## {name}", _flat(verb.__doc__)]
        parts += [_grid(("argument or option", "default", "meaning"), rows)]
    return _page(parts)


def _verbs() -> Iterator[tuple[str, Callable[..., None]]]:
    """Each verb with its full name; those of a group, such as `squid data`, come last."""
    groups = {f"squid {group.name}": group.typer_instance for group in app.registered_groups}
    for name, group in {"squid": app, **groups}.items():
        for command in group.registered_commands if group else ():
            if command.callback is not None:
                yield f"{name} {command.callback.__name__}", command.callback


def comparison_page() -> str:
    """Every row on every dataset, as `squid benchmark --table` prints it."""
    return f"{MADE}\n\n{_comparison().markdown()}"


def results_page() -> str:
    """docs/results.template with the numbers that it names."""
    measured = runpy.run_path(str(HERE / "measured.py"))
    template = (HERE.parent / "results.template").read_text(encoding="utf-8")
    title, _, rest = str(measured["filled"](template)).partition("\n")
    made = "<!-- Made by docs/reference/generate.py from results.template; do not edit. -->"
    return f"{title}\n\n{made}\n{rest}"


def readme_page() -> str:
    """The README with a short table of RSNA and ZhangLab."""
    before, rest = README.read_text(encoding="utf-8").split(TABLE)
    after = rest[rest.index(END) :]
    return f"{before}{TABLE}\n\n{_short_table()}\n\n{after}"


def _short_table() -> str:
    """One line per method, three settings of SQUID and two trivial scores."""
    table = _comparison()
    lines = {(x.section, x.row, x.selection): x for x in table.lines}
    keys: list[tuple[str, Selection]] = [(row, "final") for row in METHODS]
    rows = [_short_row(lines, *key) for key in [*keys, *SQUID_ROWS] if ("zhanglab", *key) in lines]
    trivial = {(one.section, one.name): one for one in table.trivial}
    for name in TRIVIAL_ROWS:
        pa, ap, zhanglab = (trivial[where, name] for where in ("rsna_pa", "rsna_ap", "zhanglab"))
        adjusted = "-" if zhanglab.adjusted is None else f"{zhanglab.adjusted:.1f}"
        aucs = [f"{one.measures['auc']:.1f}" for one in (pa, ap, zhanglab)]
        rows.append((f"*{name}*", "trivial", *aucs[:2], adjusted, aucs[2], ""))
    found = adjusted_for(lines["zhanglab", "ours", "final"].evaluations[0])
    assert found is not None
    counted, every = found.anomalous
    notes = (
        "AUC in percent. Selection: which weights give the scores; only the epoch chosen by labels "
        "uses labels of (validation) images. † trained for fewer steps than published. RSNA: five "
        "seeds of the fusion, one of the others; - is not run. ZhangLab: ten seeds of our setting, "
        "five of the fusion and of the authors' at 200 epochs, three of the others. Adjusted: the "
        "mean of the AUCs within deciles of sharpness, where sharpness cannot help; over "
        f"{counted} of {every} anomalous images, since deciles with fewer than {LEAST} healthy "
        "ones do not count."
    )
    head = (
        "method",
        "selection",
        "RSNA, PA",
        "RSNA, AP",
        "ZhangLab, adjusted",
        "ZhangLab",
        "paper",
    )
    return f"{_grid(head, rows)}\n\n{notes}"


def _short_row(
    lines: Mapping[tuple[str, str, Selection], Line], row: str, selection: Selection
) -> tuple[str, ...]:
    line = lines["zhanglab", row, selection]
    others = [lines.get((section, row, selection)) for section in ("rsna_pa", "rsna_ap")]
    paper = line.paper.get("auc")
    return (
        line.title + (" †" if line.shortened else ""),
        line.selection_name.partition(",")[0],
        *("-" if other is None else f"{other.measure('auc'):.1f}" for other in others),
        "-" if line.adjusted is None else f"{line.adjusted:.1f}",
        f"{line.measure('auc'):.1f}",
        "-" if paper is None else f"{paper:.1f}",
    )


def methods_page() -> str:
    """Every method with its paper."""
    rows = [(f"`{name}`", method.title, method.paper) for name, method in METHODS.items()]
    return _page([METHODS_INTRO, _grid(("name", "method", "paper"), rows)])


def _comparison() -> BenchmarkTable:
    return table_of_results([JOBS], "The comparison")


def _page(parts: list[str]) -> str:
    return "\n\n".join([MADE, *parts]) + "\n"


def _section(config: Any) -> str:
    return f"{_flat(config.__doc__)}\n\n{_table(_rows(config))}"


def _rows(
    config: type[Config], skip: tuple[str, ...] = ("name",)
) -> Iterator[tuple[str, str, str, str]]:
    """Key, type, default and meaning."""
    for name, field in config.model_fields.items():
        if name not in skip or config in INNER:
            default = field.get_default(call_default_factory=True)
            shown = "" if field.is_required() else f"`{_toml(default)}`"
            yield f"`{name}`", _kind(field), shown, _flat(field.description)


def _kind(field: FieldInfo) -> str:
    return _type(field.annotation).replace("|", "\\|")


def _type(kind: Any) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " | ".join(f"`{_toml(value)}`" for value in inner)
    if origin in (types.UnionType, typing.Union):
        return " | ".join(_type(part) for part in inner if part is not type(None))
    if origin is typing.Annotated:
        return _type(inner[0])
    if origin is tuple:
        repeated = len(inner) == 2 and inner[1] is Ellipsis
        return f"list of {_type(inner[0])}" if repeated else f"{len(inner)} x {_type(inner[0])}"
    if kind in INNER:
        return f"[table](#{INNER[kind].lower().replace(' ', '-')})"
    return {str: "text", Path: "path"}.get(kind, getattr(kind, "__name__", str(kind)))


def _toml(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Config):
        return _inline(value)
    return f'"{value}"' if isinstance(value, str | Path) else str(value)


def _inline(values: Config) -> str:
    """A table inside a table: what differs from that table's own defaults."""
    plain = type(values)()
    changed = {k: v for k, v in values if v != getattr(plain, k)}
    return (
        f"{{ {', '.join(f'{k} = {_toml(v)}' for k, v in changed.items())} }}" if changed else "{}"
    )


def _parameter(name: str, hint: Any, default: Any) -> tuple[str, str, str]:
    kind, info = typing.get_args(hint)[:2]
    if isinstance(info, OptionInfo):
        declared = info.param_decls or (f"--{name.rstrip('_').replace('_', '-')}",)
        shown = " ".join([declared[0], *filter(None, [info.metavar or _choices(kind)])])
    else:
        shown = info.metavar or name.upper()
    plain = default is None or default is False or default in ("", inspect.Parameter.empty)
    value = "" if plain else f"`{default}`"
    return f"`{shown}`".replace("|", "\\|"), value, _flat(info.help)


def _choices(kind: Any) -> str:
    """The values of a Literal, also of one that may be left out."""
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(typing.get_args(kind))
    return "".join(_choices(part) for part in typing.get_args(kind))


def _table(rows: Iterator[tuple[str, str, str, str]]) -> str:
    return _grid(("key", "type", "default", "meaning"), list(rows))


def _grid(head: tuple[str, ...], rows: list[Any]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _flat(text: str | None) -> str:
    return " ".join((text or "").split()).replace(" | ", " \\| ")


if __name__ == "__main__":
    (HERE / "recipe.md").write_text(recipe_page(), encoding="utf-8")
    (HERE / "cli.md").write_text(cli_page(), encoding="utf-8")
    (HERE / "methods.md").write_text(methods_page(), encoding="utf-8")
    (HERE / "comparison.md").write_text(comparison_page(), encoding="utf-8")
    (ROOT / "src/squid/benchmark/timings.toml").write_text(
        timings(read_results([JOBS])[0], step_seconds(STUDY)), encoding="utf-8"
    )
    (HERE.parent / "results.md").write_text(results_page(), encoding="utf-8")
    README.write_text(readme_page(), encoding="utf-8")
