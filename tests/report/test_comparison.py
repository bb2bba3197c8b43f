"""Several runs on one page."""

import json
import shutil
from pathlib import Path
from typing import Any

from squid.report import write_report


def seeded(run: Path, name: str, seed: int, **changes: Any) -> Path:
    """A copy of a run that differs in its seed, with other numbers."""
    copy = Path(shutil.copytree(run, run.parent / name))
    recipe = (copy / "recipe.toml").read_text()
    (copy / "recipe.toml").write_text(recipe.replace("seed = 0\nfalse", f"seed = {seed}\nfalse"))
    kept = json.loads((copy / "metrics.json").read_text())
    kept["by_selection"]["final"]["metrics"]["healthy"]["auc"]["value"] = changes.pop("auc")
    (copy / "metrics.json").write_text(json.dumps({**kept, **changes}))
    return copy


def test_seeds_of_a_recipe_become_a_mean(run: Path) -> None:
    runs = [seeded(run, "first", 1, auc=0.6), seeded(run, "second", 2, auc=0.8)]
    out = write_report(runs)
    assert out == run.parent / "comparison.html"
    page = out.read_text(encoding="utf-8")
    assert "0.700 <small>± 0.141</small>" in page
    assert "different images" not in page
    for name in ("comparison-roc", "comparison-training"):
        assert (out.parent / "figures" / f"{name}.png").is_file()
        assert (out.parent / "figures" / f"{name}.svg").is_file()


def test_each_run_is_tested_against_the_first_one(run: Path) -> None:
    runs = [seeded(run, "first", 1, auc=0.6), seeded(run, "second", 2, auc=0.8)]
    page = write_report(runs).read_text(encoding="utf-8")
    # Copies score alike: there is no difference.
    assert "AUC of first minus that of the other run" in page
    assert "+0.000 <small>[+0.000, +0.000]</small>" in page


def test_runs_on_different_images_get_a_warning(run: Path) -> None:
    runs = [seeded(run, "first", 1, auc=0.6), seeded(run, "second", 2, auc=0.8, fingerprint="b")]
    assert "different images" in write_report(runs).read_text(encoding="utf-8")


def test_a_run_without_numbers_is_named(run: Path) -> None:
    other = seeded(run, "<i>other", 1, auc=0.6)
    (other / "metrics.json").unlink()
    page = write_report([run, other], run.parent / "both.html").read_text(encoding="utf-8")
    assert "Not evaluated yet" in page
    assert "<i>other" not in page
    assert "&lt;i&gt;other" in page
