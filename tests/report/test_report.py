"""What the page of one run says, and what it must never do."""

import json
import re
from pathlib import Path

import pytest

from squid.data.image_set import Splits
from squid.errors import ConfigError, RunError
from squid.evaluation.evaluate import evaluate_run, read_evaluations
from squid.recipe import Recipe
from squid.report import write_report
from squid.run import Run
from squid.train import Engine
from squid.training import train_run

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
            assert f"{one.value:.3f} <small>[{one.low:.3f}, {one.high:.3f}]</small>" in page
    assert "Threshold from healthy images" in page
    assert "Threshold of best accuracy" in page
    assert "optimistic" in page
    assert "10 validation normals" in page


def test_digit_tables(page: str, trained: Path) -> None:
    record = json.loads((trained / "metrics.json").read_text())
    clean, noisy = record["by_selection"]["final"]["digits"]
    for kind, name in (("gradcam", "Grad-CAM"), ("memory", "memory distance")):
        values = f"{clean['localisation'][kind]:.3f}</td><td>{noisy['localisation'][kind]:.3f}"
        assert f'<th scope="row">{name}</th><td>{values}</td>' in page
    assert f"<td>{clean['restoration']['faithfulness']:.3f}</td>" in page
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
    page = write_report([run], device="cpu").read_text(encoding="utf-8")
    assert f"<code>squid evaluate {run}</code>" in page
    assert "figure-roc" not in page
    assert "figure-training" in page


def test_other_images_are_not_shown(run: Path) -> None:
    """The recipe's own data has other names, so another fingerprint."""
    page = write_report([run], device="cpu").read_text(encoding="utf-8")
    assert "The images changed since the training" in page
    assert "figure-roc" in page
    assert "figure-most-anomalous" not in page


def test_the_report_watches_the_torch_network_although_there_is_an_onnx_file(
    run: Path, splits: Splits
) -> None:
    """Which a detector on a CPU would take by itself, and in which no memory can be watched."""
    (run / "model.onnx").write_bytes(b"not opened")
    page = write_report([run], device="cpu", splits=splits).read_text(encoding="utf-8")
    assert "figure-slot-use" in page


def test_method_without_memory_lacks_that_section(recipe: Recipe, tmp_path: Path) -> None:
    method = {"name": "auto_encoder", "size": 48, "epochs": 1, "batch_size": 16}
    plain = Recipe.model_validate({**recipe.model_dump(mode="json"), "method": method})
    train_run(plain, tmp_path / "plain", engine=Engine("cpu"))
    evaluate_run(tmp_path / "plain", device="cpu")
    out = write_report([tmp_path / "plain"], tmp_path / "elsewhere" / "page.html", device="cpu")
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
