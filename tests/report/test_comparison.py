"""Several runs on one page."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from squid.report import write_report
from squid.run.manifest import Manifest


def seeded(run: Path, name: str, seed: int, **changes: Any) -> Path:
    """A copy of a run that differs in its seed, with other numbers."""
    copy = Path(shutil.copytree(run, run.parent / name))
    change_recipe(copy, "seed = 0\nfalse", f"seed = {seed}\nfalse")
    kept = json.loads((copy / "metrics.json").read_text())
    kept["by_selection"]["final"]["metrics"]["healthy"]["auc"]["value"] = changes.pop("auc")
    (copy / "metrics.json").write_text(json.dumps({**kept, **changes}))
    return copy


def change_recipe(run: Path, old: str, new: str) -> None:
    path = run / "recipe.toml"
    path.write_text(path.read_text().replace(old, new))
    Manifest(run).add("recipe.toml")


def test_seeds_of_a_recipe_become_a_mean(run: Path) -> None:
    runs = [seeded(run, "first", 1, auc=0.6), seeded(run, "second", 2, auc=0.8)]
    out = write_report(runs).path
    assert out == run.parent / "comparison.html"
    page = out.read_text(encoding="utf-8")
    assert "70.0 <small>± 14.1</small>" in page
    assert "different images" not in page
    for name in ("comparison-roc", "comparison-training"):
        assert (out.parent / "figures" / f"{name}.png").is_file()
        assert (out.parent / "figures" / f"{name}.svg").is_file()


def test_each_run_is_tested_against_the_first_one(run: Path) -> None:
    runs = [seeded(run, "first", 1, auc=0.6), seeded(run, "second", 2, auc=0.8)]
    page = write_report(runs).path.read_text(encoding="utf-8")
    # Copies score alike: there is no difference.
    assert "AUC of first minus that of the other run" in page
    assert "+0.0 <small>+0.0 to +0.0</small>" in page


def test_runs_on_different_images_get_a_warning(run: Path) -> None:
    runs = [seeded(run, "first", 1, auc=0.6), seeded(run, "second", 2, auc=0.8, fingerprint="b")]
    assert "different images" in write_report(runs).path.read_text(encoding="utf-8")


def test_a_run_without_numbers_is_named(run: Path) -> None:
    other = seeded(run, "<i>other", 1, auc=0.6)
    (other / "metrics.json").unlink()
    page = write_report([run, other], run.parent / "both.html").path.read_text(encoding="utf-8")
    assert "Not evaluated yet" in page
    assert "<i>other" not in page
    assert "&lt;i&gt;other" in page


def test_runs_have_their_own_names_and_their_differences_are_listed(run: Path) -> None:
    other = seeded(run, "wider", 0, auc=0.6)
    change_recipe(other, "k = 5", "k = 7")
    page = write_report([run, other]).path.read_text(encoding="utf-8")
    assert '<th scope="col">copy</th><th scope="col">wider</th>' in page
    assert '<th scope="row">method.k</th><td>5</td><td>7</td>' in page
    assert '<th scope="row">seed</th>' not in page
    assert "Over seeds" not in page


def test_thresholds_of_two_kinds_are_never_in_one_table(run: Path) -> None:
    page = write_report([run, seeded(run, "other", 1, auc=0.6)]).path.read_text(encoding="utf-8")
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    healthy = [one for one in tables if "held-out healthy images" in one]
    optimistic = [one for one in tables if "optimistic" in one]
    assert healthy
    assert optimistic
    assert not set(healthy) & set(optimistic)
    assert "12 <small>" in healthy[0]
    assert "<td>10 %</td>" in healthy[0]
