"""The detector: the same scores by every way in, every engine and every batch."""

import os
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from torch import Tensor

from squid import scoring
from squid.calibration import Calibration
from squid.data.image_set import ImageSet, Splits
from squid.detector import Detector, new_method
from squid.errors import ConfigError, DataError
from squid.inference.onnx import ExportError
from squid.recipe import CalibrationConfig, Recipe
from squid.run import Run

SIZE = 32
SQUID = {
    "name": "squid", "size": SIZE, "width": 4, "depth": 3, "heads": 2, "discriminator_width": 4,
    "slots": 8, "matrix_slots": 8, "k": 3,
}  # fmt: skip
MEMORYLESS = {"name": "auto_encoder", "size": SIZE, "channels": (4, 8), "hidden": 8, "latent": 4}


def recipe(method: dict[str, object] = SQUID) -> Recipe:
    return Recipe.model_validate({"data": {"name": "digitanatomy"}, "method": method})


@pytest.fixture(scope="module")
def pixels() -> Tensor:
    return torch.randint(
        0, 256, (37, 1, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


@pytest.fixture(scope="module")
def detector(pixels: Tensor) -> Detector:
    calibration = Calibration(mean=0.5, std=2.0, count=9, thresholds={0.1: 0.7}, heldout=9)
    return Detector(new_method(recipe()), calibration, recipe(), device="cpu")


@pytest.fixture
def run(detector: Detector, tmp_path: Path) -> Path:
    detector.save(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def files(pixels: Tensor, tmp_path: Path) -> list[Path]:
    folder = tmp_path / "images"
    folder.mkdir()
    paths = [folder / f"{i}.png" for i in range(20)]
    for path, image in zip(paths, pixels, strict=False):
        PIL.Image.fromarray(image[0].numpy()).save(path)
    return paths


# ------------------------------------------------------------------ the ways in


def test_scores_do_not_depend_on_the_batch(detector: Detector, pixels: Tensor) -> None:
    together = detector.score(pixels)
    assert together.shape == (37,)
    assert together.dtype == np.float64
    alone = np.concatenate([detector.score(image) for image in pixels])
    np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(detector.score(pixels.flip(0))[::-1], together, rtol=1e-4, atol=1e-5)


def test_files_folders_and_arrays_score_alike(
    detector: Detector, pixels: Tensor, files: list[Path]
) -> None:
    expected = detector.score(pixels[:20])
    assert np.array_equal(detector.score(files), expected)
    assert np.array_equal(detector.score(files[0].parent), expected)
    assert np.array_equal(detector.score(pixels[:20, 0].numpy()), expected)
    assert np.array_equal(detector.score(pixels[:20].float() / 255), expected)


def test_nothing_scores_nothing(detector: Detector) -> None:
    assert detector.score(torch.empty(0, 1, SIZE, SIZE)).shape == (0,)


def test_a_broken_file_is_refused_or_named(detector: Detector, files: list[Path]) -> None:
    files[3].write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"3\.png"):
        detector.score(files)
    told: list[tuple[int, int]] = []
    scored = detector.score_files(files, on_error="skip", progress=lambda *done: told.append(done))
    assert [source for source, _ in scored.skipped] == [str(files[3])]
    assert scored.sources == tuple(str(path) for path in files if path != files[3])
    assert len(scored.scores) == 19
    assert told[-1] == (20, 20)


def test_a_prediction_says_what_a_score_means(detector: Detector, files: list[Path]) -> None:
    scores = detector.score(files)
    for prediction, score, path in zip(detector.predict(files), scores, files, strict=True):
        assert prediction.source == str(path)
        assert prediction.score == score
        assert prediction.anomalous == (score >= 0.7)
        assert prediction.standardised == pytest.approx(1 / (1 + np.exp(-(score - 0.5) / 2.0)))


def test_a_saved_detector_scores_the_same(detector: Detector, run: Path, pixels: Tensor) -> None:
    loaded = Detector.load(run, device="cpu", engine="torch")
    assert np.array_equal(loaded.score(pixels), detector.score(pixels))
    assert loaded.calibration == detector.calibration


def test_mean_and_spread_come_from_the_images_the_recipe_names(pixels: Tensor) -> None:
    images = ImageSet(pixels, np.zeros(len(pixels), int), tuple(map(str, range(len(pixels)))))
    splits = Splits(images, images, images, official=False)

    def calibration(**settings: object) -> Calibration:
        given = recipe(MEMORYLESS).model_copy(
            update={"calibration": CalibrationConfig.model_validate(settings)}
        )
        return Detector.calibrated(new_method(given), given, splits, device="cpu").calibration

    assert calibration().count == len(pixels)
    assert calibration(images=5).count == 5
    assert calibration(images=5, augmented=True).mean != calibration(images=5).mean


# ------------------------------------------------------------------- the engines


def test_bf16_is_near(detector: Detector, run: Path, pixels: Tensor) -> None:
    rough = Detector.load(run, device="cpu", precision="bf16").score(pixels)
    exact = detector.score(pixels)
    assert not np.array_equal(rough, exact)
    np.testing.assert_allclose(rough, exact, atol=0.05 * np.abs(exact).max())


def test_engines_that_do_not_go_together_are_refused(run: Path, detector: Detector) -> None:
    with pytest.raises(ConfigError, match="--device cpu"):
        Detector.load(run, device="cuda", engine="onnx")
    with pytest.raises(ConfigError, match="--precision"):
        Detector.load(run, engine="onnx", precision="bf16")
    with pytest.raises(ConfigError, match="save the detector"):
        Detector(detector.method, detector.calibration, detector.recipe, engine="onnx")


class TestOnnx:
    """With the export extra only."""

    @pytest.fixture(autouse=True)
    def _needs_the_extra(self) -> None:
        pytest.importorskip("onnxscript", reason="the export extra is not installed")

    def test_scores_like_torch_and_keeps_its_file(
        self, detector: Detector, run: Path, pixels: Tensor
    ) -> None:
        exact = detector.score(pixels)
        by_onnx = Detector.load(run, engine="onnx").score(pixels)
        np.testing.assert_allclose(by_onnx, exact, rtol=1e-4, atol=1e-5)
        made = (run / "model.onnx").stat().st_mtime_ns
        assert np.array_equal(Detector.load(run, device="cpu").score(pixels), by_onnx)
        assert (run / "model.onnx").stat().st_mtime_ns == made
        Run.create(run, detector.recipe, overwrite=True)
        assert not (run / "model.onnx").exists()

    def test_a_file_older_than_the_weights_is_made_anew(self, tmp_path: Path) -> None:
        run, images = saved(tmp_path, seed=1), torch.rand(2, SIZE, SIZE)
        Detector.load(run, engine="onnx").score(images)
        other = saved(tmp_path / "other", seed=2)
        os.replace(other / "model.safetensors", run / "model.safetensors")
        os.utime(run / "model.safetensors")
        expected = Detector.load(run, device="cpu", engine="torch").score(images)
        found = Detector.load(run, engine="onnx").score(images)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)

    def test_auto_takes_an_onnx_file_that_is_there_and_writes_none(self, tmp_path: Path) -> None:
        run, images = saved(tmp_path, seed=1), torch.rand(3, SIZE, SIZE)
        Detector.load(run, device="cpu").score(images)
        assert not (run / "model.onnx").exists()
        by_onnx = Detector.load(run, engine="onnx").score(images)
        assert np.array_equal(Detector.load(run, device="cpu").score(images), by_onnx)

    def test_a_failed_export_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> float:
            raise ExportError("It differs.")

        monkeypatch.setattr(scoring, "export_onnx", fail)
        with pytest.raises(ExportError):
            Detector.load(saved(tmp_path, seed=1), engine="onnx").score(torch.rand(3, SIZE, SIZE))


def saved(folder: Path, seed: int) -> Path:
    """The run of a method that exports quickly."""
    small = recipe(MEMORYLESS).model_copy(update={"seed": seed})
    calibration = Calibration(mean=0.0, std=1.0, count=1, thresholds={}, heldout=0)
    Detector(new_method(small), calibration, small, device="cpu").save(folder / "run")
    return folder / "run"
