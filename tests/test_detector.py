"""The detector: the same scores from files and arrays, by every backend and in every batch."""

import copy
import os
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from torch import Tensor

from squid.calibration import UNCALIBRATED, Calibration
from squid.data.image_set import ImageSet, Splits
from squid.detector import Detector
from squid.errors import ConfigError, DataError, NotFiniteError, RunError
from squid.inference.onnx import ExportError
from squid.recipe import CalibrationConfig, Recipe
from squid.run import Run, UnverifiedWarning
from squid.run.manifest import Manifest
from squid.training import calibrated_detector, new_method

SIZE = 32
SQUID = {
    "name": "squid", "size": SIZE, "width": 4, "depth": 3, "heads": 2, "discriminator_width": 4,
    "slots": 8, "matrix_slots": 8, "k": 3,
}  # fmt: skip
HEALTHY = tuple(i / 10 for i in range(9))
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
    calibration = Calibration(mean=0.5, std=2.0, count=9, heldout_scores=HEALTHY)
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


# ------------------------------------------------------------ files and arrays


def test_scores_do_not_depend_on_the_batch(detector: Detector, pixels: Tensor) -> None:
    together = detector.score(pixels)
    assert together.shape == (37,)
    assert together.dtype == np.float64
    alone = np.concatenate([detector.score(image) for image in pixels])
    assert np.array_equal(alone, together)
    assert np.array_equal(detector.score(pixels.flip(0))[::-1], together)


def test_a_score_that_is_no_number_is_refused(detector: Detector, files: list[Path]) -> None:
    """Weights may be finite and their products not."""
    method = copy.deepcopy(detector.method)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.mul_(1e30)
    broken = Detector(method, detector.calibration, detector.recipe, device="cpu")
    with pytest.raises(NotFiniteError, match=rf"The score of {files[0]} is (nan|-?inf), which"):
        broken.score(files)


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


def test_pixels_of_one_gray_value_have_no_score(detector: Detector, pixels: Tensor) -> None:
    """A tensor of the method's size is held to what an array is held to."""
    mixed = torch.cat([pixels[:2], torch.zeros_like(pixels[:1])])
    for images in (mixed, mixed.numpy()):
        scored = detector.score_files(images)
        assert scored.not_applicable == (
            ("image 2", "not applicable: all pixels have one gray value"),
        )
        assert len(scored.scores) == 2
        with pytest.raises(DataError, match="image 2 has no score"):
            detector.score(images)


def test_a_broken_file_is_refused_or_named(detector: Detector, files: list[Path]) -> None:
    files[3].write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"3\.png"):
        detector.score(files)
    reported: list[tuple[int, int]] = []
    scored = detector.score_files(
        files, on_error="skip", progress=lambda *done: reported.append(done)
    )
    assert [source for source, _ in scored.skipped] == [str(files[3])]
    assert scored.sources == tuple(str(path) for path in files if path != files[3])
    assert len(scored.scores) == 19
    assert reported[-1] == (20, 20)


def test_every_path_is_scored_skipped_or_left_out(detector: Detector, files: list[Path]) -> None:
    files[3].write_bytes(b"nothing")
    notes = files[0].with_name("notes.txt")
    notes.write_text("notes")
    scored = detector.score_files(files[0].parent, on_error="skip")
    assert len(scored.sources) == 19
    assert [name for name, _ in scored.skipped] == [str(files[3])]
    assert [name for name, _ in scored.left_out] == [str(notes)]


def test_damage_is_refused_or_accepted(run: Path, files: list[Path]) -> None:
    data = bytearray(files[0].read_bytes())
    data[data.index(b"IDAT") - 5] ^= 1  # a checksum
    files[1].write_bytes(data)
    with pytest.raises(DataError, match="is damaged"):
        Detector.load(run, device="cpu").score(files[:2])
    accepting = Detector.load(run, device="cpu", damaged="accept")
    with pytest.warns(UserWarning, match="is damaged"):
        scored = accepting.score_files(files[:2])
    assert scored.scores[0] == scored.scores[1]
    assert scored.images[1].steps == ("read although damaged",)
    assert "is damaged" in scored.warnings[0]


def test_a_prediction_is_calibrated(detector: Detector, files: list[Path]) -> None:
    scores = detector.score(files)
    for prediction, score, path in zip(detector.predict(files), scores, files, strict=True):
        assert prediction.source == str(path)
        assert prediction.score == score
        assert prediction.flagged == (score >= 0.7)
        assert prediction.standardised == pytest.approx(1 / (1 + np.exp(-(score - 0.5) / 2.0)))


def test_a_saved_detector_scores_the_same(detector: Detector, run: Path, pixels: Tensor) -> None:
    loaded = Detector.load(run, device="cpu", backend="torch")
    assert np.array_equal(loaded.score(pixels), detector.score(pixels))
    assert loaded.calibration == detector.calibration


def test_it_names_itself_in_one_line(detector: Detector) -> None:
    assert repr(detector) == "Detector(squid, 32 pixels, cpu, calibrated on 9 images)"
    untrained = Detector(detector.method, UNCALIBRATED, detector.recipe, device="cpu")
    assert repr(untrained) == "Detector(squid, 32 pixels, cpu, not calibrated)"


def test_a_method_is_set_to_eval_mode() -> None:
    """Snapshots score a method in training, which sets itself back at each epoch."""
    method = new_method(recipe(MEMORYLESS)).train()
    Detector(method, UNCALIBRATED, recipe(MEMORYLESS), device="cpu")
    assert not method.training


def test_mean_and_spread_come_from_the_images_the_recipe_names(pixels: Tensor) -> None:
    images = ImageSet(pixels, np.zeros(len(pixels), int), tuple(map(str, range(len(pixels)))))
    splits = Splits(images, images, images, official=False)

    def calibration(**settings: object) -> Calibration:
        given = recipe(MEMORYLESS).model_copy(
            update={"calibration": CalibrationConfig.model_validate(settings)}
        )
        return calibrated_detector(new_method(given), given, splits, device="cpu").calibration

    assert calibration().count == len(pixels)
    assert calibration(images=5).count == 5
    assert calibration(images=5, augmented=True).mean != calibration(images=5).mean


# -------------------------------------------------------------------- backends


def test_bf16_is_near(detector: Detector, run: Path, pixels: Tensor) -> None:
    rough = Detector.load(run, device="cpu", precision="bf16").score(pixels)
    exact = detector.score(pixels)
    assert not np.array_equal(rough, exact)
    np.testing.assert_allclose(rough, exact, atol=0.05 * np.abs(exact).max())


def test_a_backend_that_cannot_work_is_refused(run: Path, detector: Detector) -> None:
    with pytest.raises(ConfigError, match="--device cpu"):
        Detector.load(run, device="cuda", backend="onnx")
    with pytest.raises(ConfigError, match="--precision"):
        Detector.load(run, backend="onnx", precision="bf16")
    with pytest.raises(ConfigError, match="save the detector"):
        Detector(detector.method, detector.calibration, detector.recipe, backend="onnx")


class TestOnnx:
    """With the export extra only."""

    @pytest.fixture(autouse=True)
    def _needs_the_extra(self) -> None:
        pytest.importorskip("onnxscript", reason="the export extra is not installed")

    def test_scores_like_torch_and_keeps_its_file(
        self, detector: Detector, run: Path, pixels: Tensor
    ) -> None:
        exact = detector.score(pixels)
        by_onnx = Detector.load(run, backend="onnx").score(pixels)
        np.testing.assert_allclose(by_onnx, exact, rtol=1e-4, atol=1e-5)
        made = (run / "model.onnx").stat().st_mtime_ns
        assert np.array_equal(Detector.load(run, device="cpu").score(pixels), by_onnx)
        assert (run / "model.onnx").stat().st_mtime_ns == made
        Run.create(run, detector.recipe, overwrite=True)
        assert not (run / "model.onnx").exists()

    def test_a_file_of_other_weights_is_refused(self, tmp_path: Path) -> None:
        """Also where the manifest was made to fit: the file itself names its weights."""
        run = saved(tmp_path, seed=1)
        Detector.load(run, backend="onnx")
        assert Manifest(run).read()["model.onnx"] == Manifest(run).digest("model.onnx")
        other = saved(tmp_path / "other", seed=2)
        os.replace(other / "model.safetensors", run / "model.safetensors")
        Manifest(run).add("model.safetensors")
        for backend in ("auto", "onnx"):
            with pytest.raises(RunError, match="was not made from the weights of this run; remove"):
                Detector.load(run, device="cpu", backend=backend)  # type: ignore[arg-type]
        Detector.load(run, device="cpu", backend="torch")

    @pytest.mark.parametrize("content", [b"", b"junk" * 99])
    def test_a_broken_file_is_one_sentence(self, tmp_path: Path, content: bytes) -> None:
        run = saved(tmp_path, seed=1)
        (run / "model.onnx").write_bytes(content)
        with pytest.raises(RunError, match=r"model\.onnx is not in MANIFEST\.sha256"):
            Detector.load(run, device="cpu")
        with (
            pytest.warns(UnverifiedWarning),
            pytest.raises(RunError, match="cannot be opened by ONNX Runtime; remove it"),
        ):
            Detector.load(Run.open(run, verify=False), device="cpu")

    def test_auto_takes_an_onnx_file_that_is_there_and_writes_none(self, tmp_path: Path) -> None:
        run, images = saved(tmp_path, seed=1), torch.rand(3, SIZE, SIZE)
        plain = Detector.load(run, device="cpu")
        plain.score(images)
        assert plain.backend == "torch"
        assert not (run / "model.onnx").exists()
        detector = Detector.load(run, backend="onnx")
        by_onnx = detector.score(images)
        assert detector.backend == Detector.load(run, device="cpu").backend == "onnx"
        assert np.array_equal(Detector.load(run, device="cpu").score(images), by_onnx)

    def test_torch_runs_the_modules_although_there_is_an_onnx_file(self, tmp_path: Path) -> None:
        """The report reads memories by forward hooks, which ONNX Runtime never calls."""
        run, images = saved(tmp_path, seed=1), torch.rand(3, SIZE, SIZE)
        Detector.load(run, backend="onnx").score(images)
        assert Run.open(run).onnx is not None
        for backend, calls in (("torch", 1), ("auto", 0)):
            detector = Detector.load(run, device="cpu", backend=backend)  # type: ignore[arg-type]
            seen: list[torch.nn.Module] = []
            first = next(m for m in detector.method.modules() if isinstance(m, torch.nn.Conv2d))
            first.register_forward_hook(lambda module, *_, seen=seen: seen.append(module))
            detector.score(images)
            assert len(seen) == calls

    def test_a_failed_export_is_raised(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> float:
            raise ExportError("It differs.")

        monkeypatch.setattr("squid.inference.export_onnx", fail)
        with pytest.raises(ExportError):
            Detector.load(saved(tmp_path, seed=1), backend="onnx")


def saved(folder: Path, seed: int) -> Path:
    """The run of a method that exports quickly."""
    small = recipe(MEMORYLESS).model_copy(update={"seed": seed})
    Detector(new_method(small), UNCALIBRATED, small, device="cpu").save(folder / "run")
    return folder / "run"
