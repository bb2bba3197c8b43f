"""The group of each image, by a table and by age."""

import pytest

from squid.data.groups import age_band, read_grouping
from squid.errors import ConfigError, DataError

IMAGES = ("site/a/IM0", "site/b/IM0", "site/b/7.png")


@pytest.fixture
def grouping(tmp_path):
    """grouping({"image": "group"}) by the column `ward`."""

    def grouping(rows):
        table = tmp_path / "table.csv"
        lines = [f"{image},{group}" for image, group in rows]
        table.write_text("image,ward\n" + "\n".join(lines))
        return read_grouping("ward", table)

    return grouping


@pytest.mark.parametrize(
    ("first", "folders"),
    [
        ("site/a/IM0", []),
        ("./site/a/IM0", []),
        ("a/IM0", ["site"]),
        ("IM0", ["site/a", "elsewhere"]),  # below one of several folders
    ],
)
def test_images_are_named_by_path(grouping, first, folders):
    found = grouping([(first, "1"), ("site/b/IM0", "2"), ("copied/to/7.png", "")])
    assert found.of(IMAGES, folders) == ("1", "2", "?")


def test_an_absolute_path_names_an_image_given_from_here(grouping, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert grouping([(tmp_path / "site/a/IM0", "1")]).of(["site/a/IM0"]) == ("1",)


@pytest.mark.parametrize(
    ("rows", "images", "folders"),
    [
        # A name that two images have, or two rows.
        ([("IM0", "1")], ("site/a/IM0", "site/b/IM0"), []),
        ([("x/IM0", "1"), ("y/IM0", "2")], ("site/a/IM0",), []),
        # One path below two folders.
        ([("a/IM0", "1")], ("one/a/IM0", "two/a/IM0"), ["one", "two"]),
    ],
)
def test_what_may_mean_several_images_names_none(grouping, rows, images, folders):
    with pytest.raises(DataError, match="has no row for"):
        grouping(rows).of(images, folders)


def test_one_image_has_one_group(grouping):
    grouping([("a", "1"), ("./a", "1")])
    with pytest.raises(DataError, match="into two groups"):
        grouping([("a", "1"), ("./a", "2")])


def test_headers_hold_four_columns():
    with pytest.raises(ConfigError, match="manufacturer, view, sex, age_band"):
        read_grouping("ward")


@pytest.mark.parametrize(
    ("age", "band"),
    [
        ("017Y", "0 to 17"),
        ("018Y", "18 to 39"),
        ("079Y", "60 to 79"),
        ("080Y", "80 and more"),
        ("110Y", "80 and more"),
        ("011M", "0 to 17"),
        ("500M", "40 to 59"),
        ("052W", "0 to 17"),
        ("010D", "0 to 17"),
        ("45", ""),
        ("", ""),
        ("0450Y", ""),
    ],
)
def test_an_age_has_a_band(age, band):
    assert age_band(age) == band
