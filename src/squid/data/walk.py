"""The images below a folder, found by content, and everything else by name and reason.

Nothing but regular files is ever opened: a FIFO would keep its reader waiting for ever.
"""

import os
import re
import stat
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from squid.data.decode import cores
from squid.data.dicom import HEADERLESS, is_headerless
from squid.data.opening import open_regular, special_kind

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".dcm", ".dicom"})
"""Endings of image files. Such a file is taken for an image whatever it holds, so that a broken one
is reported and not passed over."""
HEADER = 136
"""Bytes that tell what a file holds."""
LOOKED_UP = 64
"""Paths that a thread looks up in one task."""

MAGIC = (
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",  # JPEG
    b"II*\0", b"MM\0*", b"II+\0", b"MM\0+",  # TIFF and BigTIFF
)  # fmt: skip
BMP_HEADERS = frozenset({12, 40, 52, 56, 64, 108, 124})
"""Sizes of the header that follows the first 14 bytes of a BMP file."""

OTHER = "not PNG, JPEG, TIFF, BMP or DICOM"
HIDDEN = "hidden"
DICOM_DIRECTORY = "DICOMDIR"

LeftOut = tuple[tuple[str, str], ...]
"""Paths that were not taken for images, each with the reason."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Found:
    """What a folder holds."""

    images: tuple[Path, ...]
    left_out: LeftOut = ()


def find_images(folder: Path) -> Found:
    """The images below a folder in natural order. A folder that several links lead to is read
    once."""
    images: list[Path] = []
    unknown: list[Path] = []
    left_out: list[tuple[str, str]] = []
    for path in _files_below(folder, left_out):
        (images if _is_named_so(path) else unknown).append(path)
    for path, reason in zip(unknown, in_threads(_why_left_out, unknown), strict=True):
        if reason:
            left_out.append((str(path), reason))
        else:
            images.append(path)
    return Found(tuple(natural(images)), tuple(sorted(left_out)))


def why_no_image(path: Path) -> str:
    """Why a regular file is not taken for an image; '' where it is. An OSError where it cannot be
    read."""
    if _is_named_so(path):
        return ""
    with open(path, "rb", buffering=0, opener=open_regular) as file:
        header = file.read(HEADER)
    if not header:
        return "empty"
    if path.name.upper() == DICOM_DIRECTORY:
        return "a directory of DICOM files"
    suffix = path.suffix.lower() or "no suffix"
    if is_headerless(header):
        return HEADERLESS.removesuffix(".")
    return "" if is_image(header) else f"{OTHER} ({suffix})"


def is_image(header: bytes) -> bool:
    """Whether a file that begins so is of a kind that is read."""
    if header.startswith(MAGIC) or header[128:132] == b"DICM":
        return True
    return header.startswith(b"BM") and int.from_bytes(header[14:18], "little") in BMP_HEADERS


def is_hidden(name: str) -> bool:
    """Whether a file or folder is left out by its name."""
    return name.startswith(".") or name == "__MACOSX"


def natural(paths: Iterable[Path]) -> list[Path]:
    """Sorted so that image2 comes before image10."""

    def key(path: Path) -> list[tuple[int, str]]:
        parts = re.split(r"(\d+)", path.as_posix().lower())
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]

    return sorted(paths, key=lambda path: (key(path), path.as_posix()))


def in_threads(function: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer]:
    """The function's answers in order. Several threads ask: a file server takes a while."""
    parts = (items[start : start + LOOKED_UP] for start in range(0, len(items), LOOKED_UP))
    with ThreadPoolExecutor(cores()) as pool:
        for answers in pool.map(lambda part: [function(item) for item in part], parts):
            yield from answers


def summary(left_out: LeftOut) -> str:
    """How many paths were left out for each reason; '' where none was."""
    reasons = Counter(reason for _, reason in left_out).most_common()
    return ", ".join(f"{count} left out: {reason}" for reason, count in reasons)


def _files_below(top: Path, left_out: list[tuple[str, str]]) -> Iterator[Path]:
    """Regular files below a folder in no order; what else is there is added to `left_out`.

    Links are followed last, so that a folder is read under its own name where it has one here.
    """
    folders, links = deque([top]), deque[Path]()
    seen = {_identity(parent) for parent in top.resolve().parents}
    while folders or links:
        folder = folders.popleft() if folders else links.popleft()
        try:
            if (identity := _identity(folder)) in seen:
                left_out.append((str(folder), "a link to a folder that is read already"))
                continue
            seen.add(identity)
            with os.scandir(folder) as entries:
                for entry in entries:
                    match _kind(entry):
                        case "file":
                            yield folder / entry.name
                        case "folder":
                            folders.append(folder / entry.name)
                        case "link":
                            links.append(folder / entry.name)
                        case reason:
                            left_out.append((entry.path, reason))
        except OSError as error:
            left_out.append((str(folder), f"cannot be opened: {error.strerror or error}"))


def _kind(entry: os.DirEntry[str]) -> str:
    """`file`, `folder`, `link` (to a folder), or why an entry is left out."""
    if is_hidden(entry.name):
        return HIDDEN
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    try:
        mode = entry.stat().st_mode
    except OSError:
        return "a link that leads nowhere" if entry.is_symlink() else "gone"
    if stat.S_ISDIR(mode):
        return "link"
    return special_kind(mode) or "file"


def _is_named_so(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _why_left_out(path: Path) -> str:
    try:
        return why_no_image(path)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


def _identity(folder: Path) -> tuple[int, int]:
    """A number pair that all names of a folder share."""
    found = folder.stat()
    return found.st_dev, found.st_ino
