"""CheXpert: which images count, and how the paper chooses its test set."""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from squid.data.chexpert import FINDINGS, CheXpert
from squid.data.image_set import Splits
from squid.errors import DataError

SMALL = {
    "test_normals": 5,
    "test_anomalous": 26,
    "test_per_finding": 2,
    "validation_normals": 3,
    "validation_anomalous": 4,
}
Row = dict[str, str]


def write(root: Path, rows: list[Row]) -> Path:
    """A small CheXpert; a row gives the columns of train.csv, and `patient` instead of Path."""
    folder = root / "CheXpert-v1.0-small"
    rng = np.random.default_rng(0)
    table = []
    for i, row in enumerate(rows):
        path = folder / "train" / row["patient"] / f"study{i}" / "view1_frontal.jpg"
        path.parent.mkdir(parents=True)
        PIL.Image.fromarray(rng.integers(0, 256, size=(16, 16), dtype=np.uint8)).save(path)
        labels = {key: value for key, value in row.items() if key != "patient"}
        table.append({"AP/PA": "PA", "Path": path.relative_to(root).as_posix(), **labels})
    with (folder / "train.csv").open("w", newline="") as file:
        columns = ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", "No Finding", *FINDINGS]
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(table)
    return root


def many_rows() -> list[Row]:
    """40 normal images of 30 patients and, for each finding, four images of three patients."""
    rows = [{"patient": f"patient{i % 30}", "No Finding": "1.0"} for i in range(40)]
    for k, finding in enumerate(FINDINGS):
        rows += [{"patient": f"patient{100 + 10 * k + j % 3}", finding: "1.0"} for j in range(4)]
    return rows


def load(root: Path, **fields: object) -> Splits:
    return CheXpert.model_validate({"root": root, **SMALL, **fields}).load(8)


def test_the_papers_selection_of_images(tmp_path: Path) -> None:
    splits = load(write(tmp_path, many_rows()))
    train, validation, test = splits.table()
    assert (test.normal, test.anomalous) == (5, 26)
    assert (validation.normal, validation.anomalous) == (3, 4)
    assert train.anomalous == 0
    assert 20 <= train.normal <= 32
    findings = Counter(name for name in splits.test.findings or () if name)
    assert set(findings) == set(FINDINGS)
    assert min(findings.values()) >= 2


def test_patients_are_in_one_split_only(tmp_path: Path) -> None:
    root = write(tmp_path, many_rows())
    for seed in range(5):
        splits = load(root, seed=seed, contamination=0.1)
        assert splits.table()[0].anomalous > 0
        train, validation, test = (set(images.patients or ()) for _, images in splits.items())
        assert not (train & validation) | (train & test) | (validation & test)


@pytest.mark.parametrize(
    ("uncertain", "expected"),
    [
        ("ignore", {"sure": "Edema", "healthy": ""}),
        ("negative", {"sure": "Edema", "healthy": "", "mixed": ""}),
        ("positive", {"sure": "Edema|Pneumonia", "healthy": "", "mixed": "Pneumonia",
                      "unclear": "Pneumonia"}),
    ],
)  # fmt: skip
def test_uncertain_labels(tmp_path: Path, uncertain: str, expected: dict[str, str]) -> None:
    root = write(
        tmp_path,
        [
            {"patient": "sure", "Edema": "1.0", "Pneumonia": "-1.0"},
            {"patient": "unclear", "Pneumonia": "-1.0"},
            {"patient": "mixed", "No Finding": "1.0", "Pneumonia": "-1.0"},
            {"patient": "healthy", "No Finding": "1.0", "Edema": "0.0"},
            {"patient": "blank"},
            {"patient": "lying", "No Finding": "1.0", "AP/PA": "AP"},
            {"patient": "sideways", "No Finding": "1.0", "AP/PA": ""},
        ],
    )
    config = CheXpert.model_validate({"root": root, "uncertain": uncertain})
    files = config._files(root / "CheXpert-v1.0-small")
    assert dict(zip(files.patients or (), files.findings or (), strict=True)) == expected
    assert set(files.columns["view"]) == {"PA"}


def test_too_few_images_and_foreign_tables_are_refused(tmp_path: Path) -> None:
    root = write(tmp_path, many_rows())
    with pytest.raises(DataError, match="has 40 images left for test_normals = 250; lower it"):
        load(root, test_normals=250)
    with pytest.raises(DataError, match="Enlarged Cardiomediastinum in test_per_finding = 10"):
        load(root, test_per_finding=10)
    (root / "CheXpert-v1.0-small" / "train.csv").write_text("Path,Age\n")
    with pytest.raises(DataError, match="has no column 'AP/PA'"):
        load(root)
    with pytest.raises(DataError, match=r"no train\.csv"):
        load(root / "CheXpert-v1.0-small" / "train")
