"""Pictures of explained images: what they say, and at which resolution."""

import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from typer.testing import CliRunner

from squid.cli import app
from squid.detector import Detector
from squid.report.overlay_picture import Explanation, explanation_picture
from squid.report.overlays import write_overlays

ABOUT = Explanation("chest.png", "score 1.0 · flagged", "heatmap")
SIZE = 700, 500


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two images of one name, larger than the method's size and not square."""
    rng = np.random.default_rng(0)
    paths = [tmp_path / "images" / part / "x.png" for part in ("a", "b")]
    for path in paths:
        path.parent.mkdir(parents=True)
        PIL.Image.fromarray(rng.integers(0, 256, SIZE[::-1], dtype=np.uint8)).save(path)
    return paths


def find(picture: PIL.Image.Image, panel: np.ndarray) -> bool:
    """Whether the pixels of a panel stand somewhere in a picture."""
    pixels, (height, width) = np.asarray(picture), panel.shape[:2]
    corners = np.argwhere((pixels == panel[0, 0]).all(-1))
    return any(
        np.array_equal(pixels[top : top + height, left : left + width], panel)
        for top, left in corners
    )


def test_a_picture_holds_the_image_at_its_own_resolution() -> None:
    rng = np.random.default_rng(0)
    image = PIL.Image.fromarray(rng.integers(0, 256, SIZE[::-1], dtype=np.uint8))
    heat = np.zeros((8, 8))
    heat[:4] = 1.0
    picture = explanation_picture(image, heat, heat, (0.0, 1.0), ABOUT)
    assert picture.width > 3 * SIZE[0]
    assert find(picture, np.asarray(image.convert("RGB")))


def test_a_heatmap_colours_the_place_it_belongs_to() -> None:
    """Stretched over the image: its upper half is that of the image, whatever the proportions."""
    heat = np.zeros((8, 8))
    heat[:4] = 1.0
    picture = explanation_picture(
        PIL.Image.new("L", (400, 800), 100), None, heat, (0.0, 1.0), ABOUT
    )
    pixels = np.asarray(picture).astype(int)
    gray = (pixels == 100).all(-1)
    # Rows through the middle of both halves: there the second panel is coloured, or is not.
    height = np.flatnonzero(gray.any(1))
    above, below = height[len(height) // 4], height[3 * len(height) // 4]
    assert gray[below].sum() == 2 * gray[above].sum() == 800


def test_a_small_image_is_enlarged_by_a_whole_factor() -> None:
    image = PIL.Image.fromarray(np.arange(48 * 48, dtype=np.uint32).reshape(48, 48).astype("uint8"))
    picture = explanation_picture(image, None, np.ones((48, 48)), (0.0, 1.0), ABOUT)
    squares = np.asarray(image.convert("RGB")).repeat(8, 0).repeat(8, 1)
    assert find(picture, squares)


def test_a_warning_is_printed_in_red_and_takes_a_line_of_its_own() -> None:
    image, heat = PIL.Image.new("L", SIZE, 90), np.ones((8, 8))
    plain = explanation_picture(image, None, heat, (0.0, 1.0), ABOUT)
    warned = Explanation("chest.png", "score", "heatmap", "Do not read this heatmap.")
    loud = explanation_picture(image, None, heat, (0.0, 1.0), warned)
    assert loud.height > plain.height
    assert not (np.asarray(plain) == (198, 40, 40)).all(-1).any()
    assert (np.asarray(loud) == (198, 40, 40)).all(-1).any()


def test_values_are_those_of_the_detector(trained: Path, files: list[Path], tmp_path: Path) -> None:
    detector = Detector.load(trained, device="cpu")
    for values, suffix in (("npy", ".npy"), ("tiff", ".tiff")):
        written = write_overlays(detector, files, tmp_path / values, values=values)  # type: ignore[arg-type]
        assert [path.name for path in written.pictures] == ["x.png", "x-2.png"]
        heat = detector.explain(files, written.kind)
        for path, expected in zip(written.pictures, heat, strict=True):
            kept = path.with_suffix(suffix)
            found = np.load(kept) if values == "npy" else np.asarray(PIL.Image.open(kept))
            assert found.dtype == np.float32
            assert np.array_equal(found, expected)


def test_a_heatmap_at_chance_is_not_the_first_choice(run: Path, files: list[Path]) -> None:
    path = run / "metrics.json"
    record = json.loads(path.read_text())
    measured = record["by_selection"]["final"]["digits"][0]["localisation"]
    first = Detector.load(run, device="cpu").heatmap_kinds[0]
    record["by_selection"]["final"]["digits"][0]["localisation"] = dict.fromkeys(measured, 0.9) | {
        first: 0.468
    }
    path.write_text(json.dumps(record))
    detector = Detector.load(run, device="cpu")
    chosen = write_overlays(detector, files, run / "maps")
    assert (chosen.kind != first, chosen.warning) == (True, "")
    assert "the method's first (localisation AUC 46.8, guessing gives 50.0)" in chosen.note
    assert not write_overlays(detector, files, run / "maps", chosen.kind).note, "it was asked for"
    asked = write_overlays(detector, files, run / "maps", first)
    assert "Do not read this heatmap: localisation AUC 46.8" in asked.warning


def test_a_default_that_loses_to_a_prior_is_named_on_the_command_line(
    run: Path, files: list[Path]
) -> None:
    """Its pixels are ranked well, but a map that knows no image hits more boxes."""
    path, kinds = run / "metrics.json", Detector.load(run, device="cpu").heatmap_kinds
    record = json.loads(path.read_text())

    def found(pointing: float) -> dict[str, object]:
        one, other = ({"value": v, "low": v, "high": v} for v in (pointing, 0.8))
        rest = dict.fromkeys(("auroc", "average_precision", "overlap"), other)
        return {"images": 30, "pointing": one, **rest}

    record["by_selection"]["final"]["digits"] = []
    losing = {name: found(0.2) for name in kinds} | {"centre": found(0.3)}
    for better, said in ((kinds[1], "is shown in the place of"), ("none", "Do not read this")):
        measured = losing | ({better: found(0.4)} if better != "none" else {})
        record["by_selection"]["final"]["localisation"] = measured
        path.write_text(json.dumps(record))
        words = ["explain", str(run), str(files[0]), "--out", str(run / "maps")]
        made = CliRunner().invoke(app, words)
        assert made.exit_code == 0, made.output
        assert said in " ".join(made.stderr.split())
        assert "hits 20.0 % of boxes" in " ".join(made.stderr.split())


def test_a_file_that_cannot_be_read_does_not_cost_the_others(
    trained: Path, files: list[Path], tmp_path: Path
) -> None:
    (broken := tmp_path / "broken.png").write_bytes(b"no image")
    written = write_overlays(Detector.load(trained, device="cpu"), [broken, *files], tmp_path / "o")
    assert len(written.pictures) == 2
    assert [name for name, _ in written.skipped] == [str(broken)]


def test_an_image_without_a_score_has_a_picture_that_says_so(
    trained: Path, files: list[Path], tmp_path: Path
) -> None:
    PIL.Image.new("L", (1, 1)).save(tiny := tmp_path / "tiny.png")
    written = write_overlays(Detector.load(trained, device="cpu"), [tiny, *files], tmp_path / "o")
    assert [path.name for path in written.pictures] == ["tiny.png", "x.png", "x-2.png"]
