"""The group of each image, by a column of a table or by what DICOM headers say."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from squid.data.dicom import DicomFacts
from squid.data.headers import read_headers
from squid.data.tables import read_table
from squid.errors import ConfigError, DataError

UNKNOWN = "?"
"""The group of images that name none."""
AGES = ((18, "0 to 17"), (40, "18 to 39"), (60, "40 to 59"), (80, "60 to 79"))
"""Bands of years, each with the age at which it has ended."""
OLDEST = "80 and more"


def age_band(age: str) -> str:
    """The band of an age as DICOM writes it (045Y, 011M, 003W, 010D); '' where it is none."""
    found = re.fullmatch(r"(\d{1,3})([DWMY])", age.strip().upper())
    if found is None:
        return ""
    years = int(found[1]) / {"D": 365.25, "W": 52.18, "M": 12, "Y": 1}[found[2]]
    return next((name for end, name in AGES if years < end), OLDEST)


HEADERS: dict[str, Callable[[DicomFacts], str]] = {
    "manufacturer": lambda facts: facts.manufacturer,
    "view": lambda facts: facts.view,
    "sex": lambda facts: facts.sex,
    "age_band": lambda facts: age_band(facts.age),
}
"""What DICOM files say themselves."""


@dataclass(frozen=True)
class Grouping:
    """How images are divided into groups."""

    by: str
    """A column of the table, or one of `HEADERS`."""
    table: Path | None = None
    values: dict[str, str] | None = None
    """The groups in the table, by path or UID of an image or a study; None without a table."""

    def of(self, images: Sequence[str], folders: Iterable[Path] = ()) -> tuple[str, ...]:
        """(n,) the group of each image, which may lie below one of the folders."""
        if self.values is None:
            return self._from_headers(images)
        groups = self._by_path(self.values, images, tuple(folders))
        # Headers are read only where paths do not say it.
        rest = [i for i, group in enumerate(groups) if group is None]
        for i, facts in zip(rest, read_headers([Path(images[i]) for i in rest]), strict=True):
            uids = (facts.sop_uid, facts.study_uid) if facts is not None else ()
            groups[i] = next((self.values[uid] for uid in uids if uid in self.values), None)
            if groups[i] is None:
                raise DataError(
                    f"{self.table} has no row for {images[i]}; name images by their path, their "
                    "file name where no other has it, or the UID of the image or its study."
                )
        return tuple(group or UNKNOWN for group in groups)

    def _from_headers(self, images: Sequence[str]) -> tuple[str, ...]:
        found = read_headers([Path(image) for image in images])
        if not any(found):
            raise DataError(
                f"None of the images is a DICOM file that says its {self.by}; give a --table."
            )
        value = HEADERS[self.by]
        return tuple((value(one) if one is not None else "") or UNKNOWN for one in found)

    def _by_path(
        self, values: dict[str, str], images: Sequence[str], folders: tuple[Path, ...]
    ) -> list[str | None]:
        """The group of each image that the table names by a path; None where it does not."""
        paths = [Path(image) for image in images]
        below = [
            [str(path.relative_to(one)) for one in folders if path.is_relative_to(one)]
            for path in paths
        ]
        # A name, or a path below one of several folders, may be that of several images or rows.
        seen = Counter(key for keys in below for key in set(keys))
        names, rows = Counter(path.name for path in paths), Counter(map(_name, values))
        by_name = {_name(key): value for key, value in values.items() if rows[_name(key)] == 1}
        groups: list[str | None] = []
        for path, keys in zip(paths, below, strict=True):
            known = [str(path), os.path.abspath(path), *(key for key in keys if seen[key] == 1)]
            group = next((values[key] for key in known if key in values), None)
            if group is None and names[path.name] == 1:
                group = by_name.get(path.name)
            groups.append(group)
        return groups


def read_grouping(by: str, table: Path | None = None) -> Grouping:
    """By a column of a CSV file whose column `image` holds paths or UIDs, or by DICOM headers."""
    if table is None:
        if by not in HEADERS:
            raise ConfigError(
                f"DICOM headers give {', '.join(HEADERS)}; give a --table with a column '{by}'."
            )
        return Grouping(by)
    values: dict[str, str] = {}
    for row in read_table(table, "image", by):
        key, value = str(Path(row["image"].strip())), row[by].strip()
        if values.setdefault(key, value) != value:
            raise DataError(f"{table} puts '{key}' into two groups; keep one row.")
    return Grouping(by, table, values)


def _name(key: str) -> str:
    return Path(key).name
