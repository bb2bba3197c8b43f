"""The ground truth of DigitAnatomy is what its pixels show."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from torch import Tensor

from squid.data.digitanatomy import (
    CONDITIONS,
    DIGITS,
    DigitAnatomy,
    Split,
    digits_of_split,
    draw_conditions,
    join_cells,
    split_cells,
    to_bytes,
)
from squid.data.image_set import ANOMALOUS, NORMAL, Splits
from squid.errors import ConfigError, DataError

SIZE = 48


def config(**fields: object) -> DigitAnatomy:
    return DigitAnatomy.model_validate({"train": 30, "validation": 10, "test": 40, **fields})


def instances(settings: DigitAnatomy, split: Split) -> dict[bytes, int]:
    """The digits of a split, not jittered: pixels -> digit."""
    digits = digits_of_split(settings.digits(SIZE), split)
    cells = to_bytes(digits.pixels)
    return {cell.numpy().tobytes(): int(k) for cell, k in zip(cells, digits.classes, strict=True)}


def shown(cell: Tensor, known: dict[bytes, int]) -> int | None:
    """The digit that a cell (1, c, c) shows."""
    return known.get(cell[0].contiguous().numpy().tobytes())


@pytest.mark.parametrize("anomalies", ["few_cells", "every_cell"])
def test_every_cell_shows_its_condition(anomalies: str) -> None:
    settings = config(anomalies=anomalies, jitter=0.0)
    test, known = settings.load(SIZE).test, instances(settings, "test")
    assert test.cells is not None
    seen = set()
    for cells, conditions in zip(split_cells(test.pixels), test.cells, strict=True):
        for cell, digit, kind in zip(cells, DIGITS, conditions, strict=True):
            seen.add(CONDITIONS[kind])
            match CONDITIONS[kind]:
                case "normal":
                    assert shown(cell, known) == digit
                case "missing":
                    assert cell.max() == 0
                case "misordered":
                    assert shown(cell, known) in set(range(1, 10)) - {int(digit)}
                case "flipped":
                    assert shown(cell.flip(-1, -2), known) == digit
                case "novel":
                    assert shown(cell, known) == 0
    assert seen == set(CONDITIONS)


def test_labels_findings_and_cells_agree() -> None:
    splits = config().load(SIZE)
    for _, images in splits.items():
        assert images.cells is not None
        assert images.findings is not None
        assert np.array_equal(images.labels == ANOMALOUS, images.cells.any(axis=1))
        for row, findings in zip(images.cells, images.findings, strict=True):
            named = {CONDITIONS.index(name) for name in findings.split("|") if name}
            assert named == set(row[row > 0].tolist())


def test_few_cells_are_one_to_three_and_every_cell_has_all_kinds_alike() -> None:
    rng = np.random.default_rng(0)
    count = (draw_conditions("few_cells", 900, rng) > 0).sum(axis=1)
    assert set(count.tolist()) == {1, 2, 3}
    assert np.bincount(count)[1:].min() > 240
    cells = draw_conditions("every_cell", 2000, rng)
    assert cells.any(axis=1).all()
    assert np.bincount(cells.ravel()) / cells.size == pytest.approx(0.2, abs=0.02)


def test_no_digit_instance_serves_two_splits() -> None:
    settings = config()
    splits: list[Split] = ["train", "validation", "test"]
    parts = [set(instances(settings, split)) for split in splits]
    assert all(parts)
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]


def test_cells_of_normal_images_join_again() -> None:
    images = config().load(SIZE).train.pixels
    assert split_cells(images).shape == (30, 9, 1, 16, 16)
    assert torch.equal(join_cells(split_cells(images)), images)


def test_jitter_and_noise_change_pixels_but_not_the_truth() -> None:
    plain, moved, noisy = (
        config(**fields).load(SIZE).test
        for fields in ({"jitter": 0.0}, {"jitter": 0.1}, {"jitter": 0.0, "noise": 0.1})
    )
    assert plain.findings == moved.findings == noisy.findings
    assert not torch.equal(plain.pixels, moved.pixels)
    inside = (plain.pixels > 60) & (plain.pixels < 195)
    spread = (noisy.pixels.float() - plain.pixels.float())[inside].std() / 255
    assert spread == pytest.approx(0.1, abs=0.01)


def test_contamination_adds_known_anomalies_of_training_digits() -> None:
    train = config(contamination=0.2, jitter=0.0).load(SIZE).train
    assert np.bincount(train.labels).tolist() == [24, 6]
    assert train.cells is not None
    assert np.array_equal(train.cells.any(axis=1), train.labels == ANOMALOUS)


def test_a_size_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ConfigError, match="divides by 3, not 128; try 126"):
        config().load(128)


def made_up(n: int = 6, side: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Pictures whose brightness tells their class."""
    classes = np.repeat(np.arange(10), n)
    noise = np.random.default_rng(0).integers(0, 9, size=(len(classes), side, side))
    return (20 * classes[:, None, None] + noise).astype(np.uint8), classes.astype(np.uint8)


def assert_reads_classes(splits: Splits) -> None:
    normal = splits.test.normals
    brightness = split_cells(normal.pixels).float().mean(dim=(2, 3, 4))
    expected = torch.from_numpy(20.0 * DIGITS + 4).float()
    assert (brightness - expected).abs().max() < 3
    assert (normal.labels == NORMAL).all()


@pytest.mark.parametrize("layout", ["npz", "colour", "idx", "gz", "npy", "folders"])
def test_other_sources_are_read(tmp_path: Path, layout: str) -> None:
    images, classes = made_up()
    source = tmp_path
    if layout == "npz":
        source = tmp_path / "digits.npz"
        np.savez(source, x_train=images[::2], y_train=classes[::2], x_test=images[1::2],
                 y_test=classes[1::2])  # fmt: skip
    elif layout == "colour":
        source = tmp_path / "colour.npz"
        np.savez(source, images=np.repeat(images[..., None], 3, axis=-1), labels=classes[:, None])
    elif layout in ("idx", "gz"):
        write_idx(tmp_path, "train-images-idx3-ubyte", images, packed=layout == "gz")
        write_idx(tmp_path, "train-labels-idx1-ubyte", classes, packed=layout == "gz")
    elif layout == "npy":
        for k in range(10):
            np.save(tmp_path / f"{k}.npy", images[classes == k])
    else:
        for i, (image, k) in enumerate(zip(images, classes, strict=True)):
            (tmp_path / f"class{k}").mkdir(exist_ok=True)
            PIL.Image.fromarray(image).convert("RGB").save(tmp_path / f"class{k}" / f"{i}.png")
    assert_reads_classes(config(source=str(source), jitter=0.0, test=5).load(36))


def write_idx(folder: Path, name: str, array: np.ndarray, packed: bool) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">i4").tobytes()
    data = header + array.tobytes()
    folder.mkdir(exist_ok=True)
    path = folder / (name + ".gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)


def test_mnist_is_read(shared: Callable[..., Path]) -> None:
    settings = config(source=str(shared("data", "mnist", "mnist.npz")), instances=50)
    digits = digits_of_split(settings.digits(84), "train")
    assert digits.pixels.shape == (350, 28, 28)
    assert np.bincount(digits.classes).tolist() == [35] * 10


def test_mnist_is_the_same_in_its_idx_files(shared: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "npz").mkdir()
    with np.load(shared("data", "mnist", "mnist.npz")) as file:
        arrays = {name: array[:500] for name, array in file.items()}
    np.savez(tmp_path / "npz" / "mnist.npz", **arrays)
    for part, name in (("train", "train"), ("test", "t10k")):
        write_idx(tmp_path / "idx", f"{name}-images-idx3-ubyte", arrays[f"x_{part}"], packed=True)
        write_idx(tmp_path / "idx", f"{name}-labels-idx1-ubyte", arrays[f"y_{part}"], packed=True)
    npz, idx = (config(source=str(tmp_path / name)).load(SIZE) for name in ("npz", "idx"))
    assert npz.fingerprint == idx.fingerprint


@pytest.mark.parametrize("content", [b"", b"not an npz"])
def test_broken_sources_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "digits.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"digits\.npz"):
        config(source=str(path)).load(SIZE)
    with pytest.raises(DataError, match="no digit source"):
        config(source=str(tmp_path / "absent")).load(SIZE)
