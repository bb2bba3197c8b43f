"""What the page of one run says, and what it must never do."""

import html
import json
import re
from base64 import b64encode
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

import pytest

from squid.errors import ConfigError, RunError
from squid.evaluation.evaluate import evaluate_run, read_evaluations
from squid.recipe import Recipe
from squid.report import write_report
from squid.run import Run
from squid.train import Engine
from squid.training import train_run

Hostile = Callable[[], AbstractContextManager[None]]
"""While it is open, test images have the names of an attacker, as when the run was trained."""

FIGURES = ("roc", "scores", "most-anomalous", "most-normal", "training", "memory-map", "slot-use")


@pytest.fixture
def page(trained: Path) -> str:
    return (trained / "report.html").read_text(encoding="utf-8")


def test_nothing_is_fetched_or_executed(page: str) -> None:
    assert "://" not in page
    assert "<script" not in page
    sources = re.findall(r'(?:src|srcset|href)="([^"]*)"', page)
    assert sources
    assert all(source.startswith("data:") for source in sources)


def test_names_and_findings_from_files_are_escaped(page: str) -> None:
    assert "&lt;script&gt;alert(" in page
    assert "&lt;b&gt;novel&lt;/b&gt;" in page
    assert "<b>novel" not in page


def test_says_what_was_trained_on_what(page: str, trained: Path, recipe: Recipe) -> None:
    environment = Run(trained).environment
    for key in ("data", "version", "torch", "python", "device"):
        assert str(getattr(environment, key)) in page
    assert recipe.title in page
    assert "<td>48</td><td>0</td>" in page
    assert "not a medical device" in page


def test_numbers_are_those_of_the_evaluation(page: str, trained: Path) -> None:
    record = read_evaluations(Run(trained))
    assert record is not None
    for metrics in record.final.metrics.values():
        for one in (metrics.auc, metrics.average_precision, metrics.f1):
            value, low, high = (f"{100 * x:.1f}" for x in (one.value, one.low, one.high))
            assert f"{value} <small>{low} to {high}</small>" in page
    assert "Threshold from healthy images" in page
    assert "Threshold of best accuracy" in page
    assert "optimistic" in page
    assert "10 validation normals" in page


def test_the_first_screen_has_counts_beside_percent_and_six_images(
    page: str, trained: Path
) -> None:
    record = read_evaluations(Run(trained))
    assert record is not None
    metrics = record.final.metrics["healthy"]
    flagged = record.final.array >= metrics.threshold.value
    found, alarms = (int(flagged[record.images.labels == label].sum()) for label in (1, 0))
    assert f"<b>{found} of 12</b>" in page
    assert f"<b>{alarms} of 12</b>" in page
    assert f"{100 * alarms / 12:.1f} % of normal images, wanted 10 %" in page
    assert f"<td>{found} found</td><td>{12 - found} missed</td>" in page
    assert f"<td>{alarms} false alarms</td><td>{12 - alarms}</td>" in page
    first, later = (page.index(text) for text in ("<h3>Missed</h3>", "How well it detects"))
    groups = re.findall(r"<h3>(.*?)</h3>", page[first:later])
    assert groups == ["Missed", "False alarms", "Found"]


def test_a_heatmap_at_chance_is_folded_away_with_the_reason(run: Path, hostile: Hostile) -> None:
    path = run / "metrics.json"
    record = json.loads(path.read_text())
    digits = record["by_selection"]["final"]["digits"][0]
    digits["localisation"] = dict.fromkeys(digits["localisation"], 0.9) | {"gradcam": 0.468}
    path.write_text(json.dumps(record))
    with hostile():
        page = write_report([run], device="cpu").path.read_text(encoding="utf-8")
    folded = re.search(r"<details><summary>Not shown above: Grad-CAM.*?</details>", page)
    assert folded is not None
    assert "localisation AUC 46.8, guessing gives 50.0" in folded.group()
    assert 'id="figure-chance-gradcam"' in folded.group()
    assert "figure-chance-memory" not in page


def test_what_makes_a_page_unfit_is_loud(run: Path, hostile: Hostile) -> None:
    path = run / "metrics.json"
    record = json.loads(path.read_text())
    for metrics in record["by_selection"]["final"]["metrics"].values():
        metrics["auc"]["value"] = 0.312
    path.write_text(json.dumps(record))
    with hostile():
        written = write_report([run], device="cpu")
    page = written.path.read_text(encoding="utf-8")
    assert [text.partition(":")[0] for text in written.cautions] == [
        "The AUC is 31.2",
        "Only 12 normal test images",
        "Only 12 anomalous test images",
    ]
    assert page.count('class="alarm" role="alert"') == 3
    assert page.index('class="alarm"') < page.index('class="tiles"')


def test_a_page_with_pictures_is_not_replaced_by_one_without(run: Path, hostile: Hostile) -> None:
    with hostile():
        good = write_report([run], device="cpu").path
    before = good.read_bytes()
    with pytest.raises(RunError, match=r"has pictures.*images changed.*--out"):
        write_report([run], device="cpu")
    assert good.read_bytes() == before
    written = write_report([run], run / "other.html", device="cpu")
    assert "images changed" in written.cautions[0]
    assert written.cautions[0] in written.path.read_text(encoding="utf-8")


def test_a_browser_may_load_nothing_else(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = b64encode(sha256(style.group(1).encode()).digest()).decode()
    allowed = dict(part.split(" ", 1) for part in html.unescape(policy.group(1)).split("; "))
    assert allowed == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert " style=" not in page


def test_digit_tables(page: str, trained: Path) -> None:
    record = json.loads((trained / "metrics.json").read_text())
    clean, noisy = record["by_selection"]["final"]["digits"]
    for kind, name in (("gradcam", "Grad-CAM"), ("memory", "memory distance")):
        shares = (100 * one["localisation"][kind] for one in (clean, noisy))
        values = "</td><td>".join(f"{share:.1f}" for share in shares)
        assert f'<th scope="row">{name}</th><td>{values}</td>' in page
    assert f"<td>{100 * clean['restoration']['faithfulness']:.1f}</td>" in page
    assert "noise 0.1" in page


def test_every_figure_is_explained_and_saved(page: str, trained: Path) -> None:
    shown = re.findall(r'<figure id="figure-([^"]*)">', page)
    assert set(FIGURES) <= set(shown)
    assert len(re.findall(r'<img [^>]*alt="[^"]+', page)) == len(shown)
    assert len(re.findall(r"<figcaption>[^<]{20,}</figcaption>", page)) == len(shown)
    for name in shown:
        assert (trained / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (trained / "figures" / f"{name}.svg").read_text(encoding="utf-8")


def test_without_numbers_it_says_how_to_make_them(run: Path) -> None:
    (run / "metrics.json").unlink()
    page = write_report([run], device="cpu").path.read_text(encoding="utf-8")
    assert f"<code>squid evaluate {run}</code>" in page
    assert "figure-roc" not in page
    assert "figure-training" in page


@pytest.mark.parametrize("name", ["history.csv", "environment.json"])
def test_a_damaged_record_is_named(run: Path, name: str) -> None:
    (run / name).write_text("junk")
    with pytest.warns(UserWarning, match=rf"{name} is damaged"):
        write_report([run], device="cpu")


def test_other_images_are_not_shown(run: Path) -> None:
    """The recipe's own data has other names, so another fingerprint."""
    page = write_report([run], device="cpu").path.read_text(encoding="utf-8")
    assert "The images changed since the training" in page
    assert "figure-roc" in page
    assert "figure-most-anomalous" not in page


def test_the_report_watches_the_torch_network_although_there_is_an_onnx_file(
    run: Path, hostile: Hostile
) -> None:
    """Which a detector on a CPU would take by itself, and in which no memory can be watched."""
    (run / "model.onnx").write_bytes(b"not opened")
    with hostile():
        page = write_report([run], device="cpu").path.read_text(encoding="utf-8")
    assert "figure-slot-use" in page


def test_method_without_memory_lacks_that_section(recipe: Recipe, tmp_path: Path) -> None:
    method = {"name": "auto_encoder", "size": 48, "epochs": 1, "batch_size": 16}
    plain = Recipe.model_validate({**recipe.model_dump(mode="json"), "method": method})
    train_run(plain, tmp_path / "plain", engine=Engine("cpu"))
    evaluate_run(tmp_path / "plain", device="cpu")
    out = write_report(
        [tmp_path / "plain"], tmp_path / "elsewhere" / "page.html", device="cpu"
    ).path
    assert out == tmp_path / "elsewhere" / "page.html"
    page = out.read_text(encoding="utf-8")
    assert "figure-most-anomalous" in page
    assert "figure-memory-map" not in page
    assert (out.parent / "figures" / "roc.svg").is_file()


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one run"):
        write_report([])
    with pytest.raises(RunError, match="not a run folder"):
        write_report([tmp_path])
