"""The data folder: which one it is, and how datasets and weights are found in it."""

from pathlib import Path

import pytest

from squid.data.chexpert import CheXpert
from squid.data.digitanatomy import DigitAnatomy
from squid.data.folder import Folder
from squid.data.zhanglab import ZhangLab
from squid.errors import DataError
from squid.places import data_folder, weights_candidates


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no variable."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SQUID_DATA", raising=False)
    return folder


def test_the_variable_comes_first_then_data_then_the_shared_folder(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_folder() == checkout / "data"
    shared = checkout.parent / "shared" / "data"
    shared.mkdir(parents=True)
    assert data_folder() == shared
    (checkout / "data").mkdir()
    assert data_folder() == checkout / "data"
    monkeypatch.setenv("SQUID_DATA", str(checkout / "elsewhere"))
    assert data_folder() == checkout / "elsewhere"


def test_without_a_root_the_usual_names_are_tried_in_order(checkout: Path) -> None:
    second = checkout / "data" / "zhanglab128"
    second.mkdir(parents=True)
    assert ZhangLab().find_root() == second
    first = checkout / "data" / "zhanglab"
    first.mkdir()
    assert ZhangLab().find_root() == first


def test_a_relative_root_is_of_the_working_directory_then_of_the_data_folder(
    checkout: Path,
) -> None:
    inside = checkout / "data" / "hands"
    inside.mkdir(parents=True)
    assert Folder(root=Path("hands")).find_root() == inside
    here = checkout / "hands"
    here.mkdir()
    assert Folder(root=Path("hands")).find_root() == here
    assert Folder(root=inside).find_root() == inside


def test_a_resolved_dataset_is_found_from_another_working_directory(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "data" / "zhanglab").mkdir(parents=True)
    (checkout / "data" / "mnist").mkdir()
    datasets = [ZhangLab().resolved(), DigitAnatomy(source="mnist").resolved()]
    monkeypatch.chdir(checkout.parent)
    assert datasets[0].root == checkout / "data" / "zhanglab"
    assert datasets[1].source == str(checkout / "data" / "mnist")
    assert [dataset.resolved() for dataset in datasets] == datasets
    assert DigitAnatomy().resolved() == DigitAnatomy()


def test_missing_data_name_the_variable_the_guide_and_each_path(checkout: Path) -> None:
    with pytest.raises(DataError) as caught:
        CheXpert().load(8)
    message = str(caught.value)
    assert "SQUID_DATA" in message
    assert "docs/how-to/get-the-data.md" in message
    for name in CheXpert.folders:
        assert str(checkout / "data" / name) in message
    assert (Path(__file__).parents[1] / "docs/how-to/get-the-data.md").is_file()


def test_a_file_is_not_a_folder(checkout: Path) -> None:
    (checkout / "images").write_text("")
    with pytest.raises(DataError, match="images is not a folder"):
        Folder(root=Path("images")).load(8)


def test_weights_lie_inside_the_data_folder_or_next_to_it(checkout: Path) -> None:
    assert weights_candidates("vgg.safetensors") == [
        checkout / "vgg.safetensors",
        checkout / "data" / "weights" / "vgg.safetensors",
        checkout / "weights" / "vgg.safetensors",
    ]
    assert weights_candidates("/vgg.safetensors") == [Path("/vgg.safetensors")]
