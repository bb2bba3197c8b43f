"""`squid calibrate` on images that the run was trained on."""

import PIL.Image
import pytest

from squid.detector import Detector
from squid.run import Run

KEPT = "training-images.sha256"


@pytest.fixture
def folder(run, tmp_path):
    """The 12 held-out images of the run and 8 of its 24 training images."""
    (healthy := tmp_path / "healthy").mkdir()
    splits = Run.open(run).recipe.data.load(48)
    for part, images, count in (("held", splits.validation.normals, 12), ("own", splits.train, 8)):
        for i, image in enumerate(images.pixels[:count, 0].numpy()):
            PIL.Image.fromarray(image).save(healthy / f"{part}{i:02}.png")
    return healthy


def words(run, folder):
    return ("calibrate", "--device", "cpu", run, folder, "--name", "here", "--few")


def test_images_that_were_trained_on_are_refused_with_their_number(refused, squid, run, folder):
    said = refused(*words(run, folder))
    assert said.startswith("8 of 20 healthy images were trained on, for example ")
    assert "own00.png" in said
    assert "8 of 20" in refused(*words(run, folder), "--dry-run")
    assert Run(run).sites == []
    for path in folder.glob("own*"):
        path.unlink()
    assert squid(*words(run, folder))[0] == 0
    assert Run(run).sites == ["here"]


def test_a_training_keeps_one_digest_of_each_image(run):
    lines = (run / KEPT).read_text().splitlines()
    assert len(lines) == 24
    assert lines == sorted(lines)
    assert Run(run).training_images == frozenset(lines)


def test_a_run_without_them_calibrates_without_a_word(squid, run, folder):
    (run / KEPT).unlink()
    code, out, err = squid(*words(run, folder))
    assert code == 0
    assert "trained on" not in out + err


def test_a_list_that_was_changed_is_refused(refused, run, folder):
    (run / KEPT).write_text("")
    assert KEPT in refused(*words(run, folder))


def test_a_detector_that_is_saved_by_itself_has_no_list(run, tmp_path):
    detector = Detector.load(run, device="cpu")
    detector.save(run, overwrite=True)
    assert not (run / KEPT).exists()
    assert Run(run).training_images == frozenset()
