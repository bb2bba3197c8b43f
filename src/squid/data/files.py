"""Files of a dataset, and how they become splits."""

from pathlib import Path
from typing import Literal

from squid.data.base import Progress
from squid.data.decode import LoadedImages, OnError, read_many
from squid.data.image_set import FileSet, ImageSet, Splits, check
from squid.data.reading import Reading
from squid.data.walk import is_hidden, natural
from squid.errors import DataError

Unreadable = Literal["refuse", "skip"]
"""What to do with a file that is not a readable image."""


def read_files(
    files: FileSet,
    size: int,
    unreadable: Unreadable,
    progress: Progress | None,
    reading: Reading,
) -> tuple[ImageSet, tuple[str, ...]]:
    """The images, and a warning for each file that was skipped or has no image that a score means
    anything of."""
    on_error: OnError = "raise" if unreadable == "refuse" else "skip"
    try:
        loaded = read_many(files.paths, size, on_error=on_error, progress=progress, reading=reading)
    except DataError as error:
        remedy = "data.unreadable=skip goes on without such files"
        raise DataError(f"{str(error).removesuffix('.')}; {remedy}.") from None
    usable = [i for i, reason in enumerate(loaded.not_applicable) if not reason]
    kept = files.select([loaded.places[i] for i in usable])
    images = ImageSet(
        pixels=loaded.pixels[usable],
        labels=kept.labels,
        names=kept.names,
        patients=kept.patients,
        findings=kept.findings,
        boxes=kept.boxes,
        columns=kept.columns,
    )
    skipped = [f"Skipped: {reason}" for _, reason in loaded.skipped]
    left_out = [f"Left out: {name} is {reason}" for name, reason in loaded.left_out]
    return images, (*skipped, *left_out, *unusable(loaded))


def unusable(loaded: LoadedImages) -> tuple[str, ...]:
    """A warning for each image of which no score means anything."""
    both = zip(loaded.sources, loaded.not_applicable, strict=True)
    reasons = ((name, reason.removeprefix("not applicable: ")) for name, reason in both)
    return tuple(f"Left out: {name}: {reason}." for name, reason in reasons if reason)


def read_splits(
    train: FileSet | ImageSet,
    validation: FileSet | ImageSet,
    test: FileSet | ImageSet,
    *,
    size: int,
    official: bool,
    reading: Reading,
    unreadable: Unreadable = "refuse",
    progress: Progress | None = None,
    warnings: tuple[str, ...] = (),
) -> Splits:
    """The checked splits, decoded where they are files; `progress` counts over all three."""
    parts = (train, validation, test)
    done, total = 0, sum(len(part) for part in parts)
    images: list[ImageSet] = []
    for part in parts:
        if isinstance(part, FileSet):
            offset = _offset(progress, done, total)
            read, skipped = read_files(part, size, unreadable, offset, reading)
            images.append(read)
            warnings += skipped
        else:
            images.append(part)
        done += len(part)
    return check(Splits(images[0], images[1], images[2], official, warnings))


def _offset(progress: Progress | None, done: int, total: int) -> Progress | None:
    """A progress of one part, as a progress of all of them."""
    return None if progress is None else lambda count, _: progress(done + count, total)


def subfolders(folder: Path) -> dict[str, Path]:
    """The visible folders in a folder, by lower-case name."""
    return {
        path.name.lower(): path
        for path in natural(folder.iterdir())
        if path.is_dir() and not is_hidden(path.name)
    }
