"""What every dataset promises. A new one adds a line to DATASETS and a small example here."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

from squid.config import parse
from squid.data import ANOMALOUS, DATASETS, NORMAL, DataConfig, Splits
from squid.data.chexpert import FINDINGS
from squid.errors import ConfigError, DataError

SIZE = 12
RNG = np.random.default_rng(0)


def pictures(n: int) -> np.ndarray:
    return RNG.integers(0, 256, size=(n, 16, 16), dtype=np.uint8)


def save(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels in zip(names, pictures(len(names)), strict=True):
        PIL.Image.fromarray(pixels).save(folder / name, format="PNG")


def zhanglab(root: Path) -> dict[str, Any]:
    for part, n in (("train", 20), ("test", 6)):
        start = 0 if part == "train" else 100
        normal = [f"IM-{start + i:04d}-0001.jpeg" for i in range(n)]
        sick = [f"person{start + i}_virus_1.jpeg" for i in range(n)]
        np.savez(root / f"{part}_normal.npz", images=pictures(n), names=normal)
        np.savez(root / f"{part}_pneumonia.npz", images=pictures(n), names=sick)
    return {"root": root, "validation_normals": 4, "validation_anomalous": 4}


def folder(root: Path) -> dict[str, Any]:
    save(root / "normal", [f"{i}.png" for i in range(20)])
    save(root / "abnormal", [f"{i}.png" for i in range(10)])
    return {"root": root}


def digitanatomy(root: Path) -> dict[str, Any]:
    return {"train": 20, "validation": 5, "test": 6}


def nih(root: Path) -> dict[str, Any]:
    sick = np.arange(60) % 3 == 0
    np.savez(
        root / "nih_pa.npz",
        images=pictures(60),
        names=[f"{i}.png" for i in range(60)],
        labels=np.where(sick, "Mass|Nodule", "No Finding"),
        abnormal=sick,
        patient=np.arange(60) // 2,
    )
    return {"root": root}


def rsna(root: Path) -> dict[str, Any]:
    """Two images a patient; of the first sixty patients every other one also has an opacity."""
    ids = [f"image{i}" for i in range(140)]
    classes = ["Normal" if i < 120 and i % 4 else "Lung Opacity" for i in range(140)]
    save(root / "stage_2_train_images", [f"{name}.png" for name in ids])
    tables: dict[str, list[list[object]]] = {
        "stage_2_detailed_class_info.csv": [["patientId", "class"]],
        "stage_2_train_labels.csv": [["patientId", "x", "y", "width", "height", "Target"]],
        "rsna_nih.csv": [["patientId", "nih_patient", "view", "sex", "age"]],
    }
    for i, (name, kind) in enumerate(zip(ids, classes, strict=True)):
        box = [256, 512, 128, 64, 1] if kind == "Lung Opacity" else ["", "", "", "", 0]
        tables["stage_2_detailed_class_info.csv"].append([name, kind])
        tables["stage_2_train_labels.csv"].append([name, *box])
        tables["rsna_nih.csv"].append([name, i // 2, "PA", "F", 40])
    for name, rows in tables.items():
        with (root / name).open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    return {"root": root, "test_share": 0.3}


def chexpert(root: Path) -> dict[str, Any]:
    rows = []
    for i in range(60):
        label = "No Finding" if i < 30 else FINDINGS[i % len(FINDINGS)]
        where = f"train/patient{i:05d}/study1"
        save(root / where, ["view1_frontal.jpg"])
        path = f"CheXpert-v1.0/{where}/view1_frontal.jpg"
        rows.append({"Path": path, "AP/PA": "PA", label: "1.0"})
    with (root / "train.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["Path", "AP/PA", "No Finding", *FINDINGS], restval="")
        writer.writeheader()
        writer.writerows(rows)
    few = {"test_per_finding": 1, "validation_normals": 4, "validation_anomalous": 4}
    return {"root": root, "test_normals": 6, "test_anomalous": 12, **few}


def medmnist(root: Path) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for part, n in (("train", 40), ("val", 8), ("test", 10)):
        arrays[f"{part}_images"] = pictures(n)
        arrays[f"{part}_labels"] = (np.arange(n) % 2)[:, None].astype(np.uint8)
    np.savez(root / "pneumoniamnist.npz", **arrays)
    return {"root": root / "pneumoniamnist.npz"}


EXAMPLES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "zhanglab": zhanglab,
    "folder": folder,
    "digitanatomy": digitanatomy,
    "nih": nih,
    "rsna": rsna,
    "chexpert": chexpert,
    "medmnist": medmnist,
}
GIVEN = {"medmnist"}
"""Datasets whose splits are all official."""

Make = Callable[..., DataConfig]


@pytest.fixture(params=sorted(DATASETS))
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    fields = EXAMPLES[request.param](tmp_path)
    return lambda **more: parse(DATASETS[request.param], {**fields, **more}, "test")


def test_every_dataset_has_an_example_and_its_own_name() -> None:
    assert set(EXAMPLES) == set(DATASETS)
    for name, config in DATASETS.items():
        assert config.model_fields["name"].default == name


def assert_well_formed(splits: Splits, size: int) -> None:
    for _, images in splits.items():
        assert images.pixels.shape == (len(images), 1, size, size)
        assert images.pixels.dtype == torch.uint8
        assert images.labels.dtype == np.int64
        assert set(images.labels.tolist()) <= {NORMAL, ANOMALOUS}
        if images.findings is not None:
            assert [bool(found) for found in images.findings] == images.labels.astype(bool).tolist()


@pytest.mark.parametrize("size", [SIZE, 24])
def test_images_are_gray_bytes_of_the_size_asked_for(make: Make, size: int) -> None:
    splits = make().load(size)
    assert_well_formed(splits, size)
    assert splits.train.pixels.float().std() > 1


def test_training_is_all_normal_and_the_rest_is_there(make: Make) -> None:
    train, validation, test = make().load(SIZE).table()
    assert train.normal > 0
    assert train.anomalous == 0
    assert validation.normal > 0
    assert test.normal > 0
    assert test.anomalous > 0


def test_splits_share_no_image_name_or_patient(make: Make) -> None:
    splits = make().load(SIZE)
    keys = [
        {("name", name) for name in images.names}
        | {("patient", patient) for patient in images.patients or ()}
        | {("pixels", image.numpy().tobytes()) for image in images.pixels}
        for _, images in splits.items()
    ]
    assert not (keys[0] & keys[1]) | (keys[0] & keys[2]) | (keys[1] & keys[2])


def test_a_seed_gives_one_split_and_another_seed_another(make: Make) -> None:
    first = make(seed=1).load(SIZE)
    assert first.fingerprint == make(seed=1).load(SIZE).fingerprint
    other = make(seed=2).load(SIZE).fingerprint
    assert (other == first.fingerprint) == (make().name in GIVEN)


def test_contamination_is_the_share_asked_for(make: Make) -> None:
    clean, mixed = make().load(SIZE), make(contamination=0.2).load(SIZE)
    assert_well_formed(mixed, SIZE)
    row = mixed.table()[0]
    assert row.normal + row.anomalous == len(clean.train), "as many images, so as many steps"
    assert row.anomalous == round(len(clean.train) / 5)
    assert set(mixed.train.normals.names) < set(clean.train.names)


def test_impossible_contamination_is_refused(make: Make) -> None:
    with pytest.raises(ConfigError, match="contamination"):
        make(contamination=1.0)
    with pytest.raises(DataError, match=r"contamination = 0\.99 (needs|leaves no healthy)"):
        make(contamination=0.99).load(SIZE)


def test_fewer_normals_are_a_part_of_more(make: Make) -> None:
    whole = make().load(SIZE)
    few, more = (make(training_normals=n).load(SIZE).train for n in (2, 4))
    assert (len(few), len(more)) == (2, 4)
    assert set(few.names) < set(more.names) <= set(whole.train.names)
    mixed = make(training_normals=4, contamination=0.5).load(SIZE)
    assert (mixed.table()[0].normal, mixed.table()[0].anomalous) == (2, 2)
    assert set(mixed.train.normals.names) == set(few.names), "the last of them are replaced"
    assert mixed.validation.names == whole.validation.names
    assert make(training_normals=len(whole.train)).load(SIZE).fingerprint == whole.fingerprint
    with pytest.raises(DataError, match="training_normals = 99999 is more than"):
        make(training_normals=99999).load(SIZE)


def test_a_missing_root_is_a_data_error(make: Make, tmp_path: Path) -> None:
    field = "source" if make().name == "digitanatomy" else "root"
    with pytest.raises(DataError, match="absent"):
        make(**{field: str(tmp_path / "absent")}).load(SIZE)


def test_medmnist_does_not_train_on_copies_and_reads_colour(tmp_path: Path) -> None:
    fields = medmnist(tmp_path)
    arrays = dict(np.load(fields["root"]))
    arrays["train_images"][0] = arrays["val_images"][0]
    colour = {k: np.repeat(v[..., None], 3, axis=-1) for k, v in arrays.items() if "images" in k}
    np.savez(fields["root"], **{**arrays, **colour})
    splits = DATASETS["medmnist"].model_validate(fields).load(16)
    assert "1 training images are copies" in splits.warnings[0]
    assert splits.table()[0].normal == 19
    assert np.array_equal(splits.test.pixels[:, 0].numpy(), arrays["test_images"])


def test_a_root_is_resolved_to_an_absolute_path(make: Make) -> None:
    config = make().resolved()
    assert config == config.resolved()
    place = Path(getattr(config, "root", Path("/")))
    assert place.is_absolute()
    assert config.load(SIZE).fingerprint == make().load(SIZE).fingerprint


def test_nih_is_split_by_patient(shared: Callable[..., Path]) -> None:
    splits = DATASETS["nih"].model_validate({"root": shared("data", "nih128")}).load(32)
    rows = splits.table()
    assert sum(row.patients or 0 for row in rows) <= 950
    assert rows[1].normal + rows[2].normal + rows[0].normal == 1421
    assert rows[0].normal > 700
    found = [name for names in splits.test.findings or () for name in names.split("|") if name]
    assert sum(found.count(name) >= 10 for name in set(found)) >= 10
