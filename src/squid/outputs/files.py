"""Results as CSV and JSON, row by row, so that memory does not grow with their number."""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Literal, NotRequired, TextIO, TypedDict

from squid.detector import Prediction
from squid.errors import DataError
from squid.outputs.names import cell_text, file_cell, portable, text_cell
from squid.outputs.results import Results

Format = Literal["csv", "json"]
Status = Literal["scored", "not applicable", "skipped", "left out"]

COLUMNS = (
    "image",
    "score",
    "p_value",
    "standardised",
    "flagged",
    "status",
    "reason",
    "warnings",
    "threshold",
    "rate",
    "model",
)
"""Columns of the CSV file; `steps` follows where it was asked for."""


class ImageRecord(TypedDict):
    """One image as JSON has it."""

    image: str
    score: float | None
    p_value: float | None
    standardised: float | None
    flagged: bool | None
    status: Status
    reason: str
    warnings: list[str]
    steps: NotRequired[list[str]]


def write_results(results: Results, file: TextIO, form: Format, *, steps: bool = False) -> None:
    """All images, and the files that were not scored, to an open file."""
    if form == "json":
        _write_json(results, file, steps)
    else:
        _write_csv(results, file, steps)


def _write_csv(results: Results, file: TextIO, steps: bool) -> None:
    writer = csv.writer(file)
    writer.writerow([*COLUMNS, *(["steps"] if steps else [])])
    flagging = results.flagging
    # In each row, so that a file, or a part of it, says what its flags mean.
    context = (finite(flagging.threshold), flagging.rate, results.about.digest)
    for prediction in results.predictions():
        row = [
            file_cell(prediction.source),
            prediction.score,
            prediction.p_value,
            prediction.standardised,
            prediction.flagged,
            _status(prediction),
            text_cell(prediction.not_applicable),
            text_cell("; ".join(prediction.warnings)),
            *context,
        ]
        writer.writerow([*row, *([text_cell("; ".join(prediction.steps))] if steps else [])])
    # Then the files that have no score, so that every file that was found has a row.
    for status, others in (("skipped", results.skipped()), ("left out", results.left_out())):
        for source, reason in others:
            nothing = [None] * 4
            row = [file_cell(source), *nothing, status, text_cell(reason), None, *context]
            writer.writerow([*row, *([None] if steps else [])])


def _write_json(results: Results, file: TextIO, steps: bool) -> None:
    flagging = asdict(results.flagging) | {"threshold": finite(results.flagging.threshold)}
    head = {**asdict(results.about), **flagging, "counts": asdict(results.counts)}
    file.write("{\n")
    for key, value in head.items():
        file.write(f"  {json.dumps(key)}: {json.dumps(value)},\n")
    images = (record(one, steps) for one in results.predictions())
    _write_list(file, "images", images, ",")
    _write_list(file, "skipped", _named(results.skipped()), ",")
    _write_list(file, "left_out", _named(results.left_out()), "")
    file.write("}\n")


def _write_list(file: TextIO, key: str, rows: Iterator[Mapping[str, object]], end: str) -> None:
    """A key with a list of objects, one in a line."""
    file.write(f"  {json.dumps(key)}: [")
    for i, row in enumerate(rows):
        file.write(f"{',' if i else ''}\n    {json.dumps(row, allow_nan=False)}")
    file.write(f"\n  ]{end}\n")


def record(prediction: Prediction, steps: bool) -> ImageRecord:
    """One image for JSON."""
    made = ImageRecord(
        image=portable(prediction.source),
        score=prediction.score,
        p_value=prediction.p_value,
        standardised=prediction.standardised,
        flagged=prediction.flagged,
        status=_status(prediction),
        reason=portable(prediction.not_applicable),
        warnings=list(prediction.warnings),
    )
    if steps:
        made["steps"] = list(prediction.steps)
    return made


def _named(rows: Iterator[tuple[str, str]]) -> Iterator[dict[str, str]]:
    for source, reason in rows:
        yield {"image": portable(source), "reason": portable(reason)}


def _status(prediction: Prediction) -> Status:
    return "not applicable" if prediction.score is None else "scored"


def finite(threshold: float | None) -> float | None:
    """A threshold that flags nothing is infinite, which JSON cannot hold."""
    return threshold if threshold is not None and math.isfinite(threshold) else None


def read_results(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file of `squid score`, with the text of its cells as it was."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a readable CSV file ({error}).") from None
    for row in rows:
        for name in ("reason", "warnings", "steps"):
            row[name] = cell_text(row.get(name) or "")
    return rows
