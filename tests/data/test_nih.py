"""NIH: the packed file, the published layout, and tables joined by file name."""

import csv
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from squid.data.image_set import Box, Splits
from squid.data.nih import Nih
from squid.data.prepare import main
from squid.errors import DataError

COLUMNS = ["Image Index", "Finding Labels", "Patient ID", "Patient Age", "Patient Gender",
           "View Position"]  # fmt: skip


def write(
    root: Path, folders: tuple[str, ...] = ("images",), ages: tuple[str, str] = ("9", "50")
) -> Path:
    """Thirty patients with two images each; every fifth patient is a child, every sixth AP."""
    rng = np.random.default_rng(0)
    rows: list[list[object]] = [COLUMNS]
    for i in range(60):
        patient = i // 2 + 1
        name = f"{patient:08d}_{i % 2:03d}.png"
        path = root / folders[i % len(folders)] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(rng.integers(0, 256, size=(32, 32), dtype=np.uint8)).save(path)
        label = "Mass|Nodule" if i % 3 == 0 else "No Finding"
        age = ages[0] if patient % 5 == 0 else ages[1]
        rows.append([name, label, patient, age, "F", "AP" if patient % 6 == 0 else "PA"])
    rows.append(["00009999_000.png", "Hernia", 9999, 50, "M", "PA"])  # of an archive not unpacked
    with (root / "Data_Entry_2017_v2020.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return root


def load(root: Path) -> Splits:
    return Nih(root=root).load(16)


@pytest.mark.parametrize(
    "folders",
    [("images",), ("images_001", "images_002"), ("images_001/images", "images_012/images")],
)
def test_published_layouts_give_pa_images_of_adults(
    tmp_path: Path, folders: tuple[str, ...]
) -> None:
    splits = load(write(tmp_path, folders))
    sets = [images for _, images in splits.items()]
    held = {name for images in sets[1:] for name in images.names}
    assert sum(row.normal for row in splits.table()) == 24
    assert all(set(images.columns["view"]) == {"PA"} for images in sets)
    assert all(set(images.columns["age"]) == {"50"} for images in sets)
    assert not any(name.startswith("00000005") for name in held)


def test_the_packed_file_gives_the_same_splits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = load(write(tmp_path))
    main(["nih", "--root", str(tmp_path), "--size", "16"])
    assert str(tmp_path / "nih_pa.npz") in capsys.readouterr().out
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    after = load(tmp_path)
    assert after.fingerprint == before.fingerprint
    assert after.test.columns == before.test.columns
    assert after.test.findings == before.test.findings


def test_ages_of_the_first_edition_are_read(tmp_path: Path) -> None:
    write(tmp_path, ages=("200M", "050Y"))
    (tmp_path / "Data_Entry_2017_v2020.csv").rename(tmp_path / "Data_Entry_2017.csv")
    assert sum(row.normal for row in load(tmp_path).table()) == 24


@pytest.mark.parametrize("place", ["nih", "nih_tables"])
def test_classes_and_boxes_are_joined_by_file_name(tmp_path: Path, place: str) -> None:
    root = write(tmp_path / "nih")
    assert load(root).train.boxes is None
    (tmp_path / place).mkdir(exist_ok=True)
    with gzip.open(tmp_path / place / "boxes_on_nih.csv.gz", "wt") as file:
        file.write("nih_name,source,label,x,y,w,h\n00000001_001.png,nih,Mass,256,512,128,64\n")
    (tmp_path / place / "rsna_on_nih.csv").write_text(
        "nih_name,rsna_id,rsna_class\n00000001_001.png,x,Lung Opacity\n"
    )
    found = {}
    for _, images in load(root).items():
        assert images.boxes is not None
        joined = zip(images.boxes, images.columns["rsna_class"], strict=True)
        found |= dict(zip(images.names, joined, strict=True))
    assert found.pop("00000001_001.png") == (
        (Box("Mass", 0.25, 0.5, 0.125, 0.0625),),
        "Lung Opacity",
    )
    assert set(found.values()) == {((), "")}


def test_the_split_of_the_packed_file_stays_the_same(shared: Callable[..., Path]) -> None:
    splits = load(shared("data", "nih128"))
    assert [tuple(row) for row in splits.table()] == [
        ("train", 862, 0, 426), ("validation", 120, 89, 95), ("test", 439, 274, 285),
    ]  # fmt: skip
    assert Nih(root=shared("data", "nih128")).load(128).fingerprint == "69d556456bfa925f"


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no table .*Data_Entry_2017_v2020\.csv"):
        load(tmp_path)
    write(tmp_path)
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="holds neither nih_pa"):
        load(tmp_path)
