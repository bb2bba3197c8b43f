"""The worklist: one page of scored images, the most anomalous first, that needs no server.

The page holds its pictures and may not use the network. Images are read and written some at a time,
so memory does not grow with their number.
"""

import io
import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from html import escape
from itertools import chain, islice
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import torch
from matplotlib import colormaps
from numpy.typing import NDArray

from squid.data.decode import cores
from squid.data.dicom import read_facts
from squid.data.image import read_gray, resized
from squid.detector import Detector, Prediction
from squid.durable import replacing
from squid.errors import DataError
from squid.evaluation.default_heatmap import DefaultHeatmap, default_heatmap
from squid.heatmaps import shared_scale
from squid.outputs.names import portable
from squid.outputs.results import Results
from squid.report.figures.images import HEATMAP_NAMES
from squid.report.page import RESEARCH_ONLY, asset, inlined

SHOWN = 400
"""Images with a picture; the page has about 40 MB then."""
LISTED = 5000
"""Rows of the list; a browser becomes slow with more."""
SIDE = 512
"""Pixels of a picture's longer side."""
QUALITY = 90
AT_ONCE = 32
"""Images that are in memory at a time. The first ones set the scale of all heatmaps."""
COLOURS = "plasma"
FAINT = 0.1
"""Share of the heatmaps' common scale below which nothing can be seen."""

Row = dict[str, Any]
"""One image for the script of the page."""


def write_worklist(detector: Detector, results: Results, out: Path) -> Path:
    """Write the page; every input of the scoring is listed in it, or counted."""
    predictions = list(islice(results.predictions(), LISTED))
    shown = default_heatmap(detector)
    style, script = asset("page.css") + asset("worklist.css"), asset("worklist.js")
    values = {
        "title": escape(f"Worklist of {portable(Path(results.about.run).name)}"),
        "about": escape(_summary(results) + _heatmap_note(detector, shown)),
        "warning": RESEARCH_ONLY,
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "side": SIDE,
        "limits": escape(_limits(results, len(predictions))),
        "facts": _json(_about(results, predictions)),
    }
    before, after = asset("worklist.html").split("$rows")
    unscored = list(chain(results.not_applicable(), results.skipped(), results.left_out()))
    name_of = _short_names([one.source for one in predictions] + [name for name, _ in unscored])
    rows = chain(_scored(detector, predictions, shown.kind, name_of), _unscored(unscored, name_of))
    with replacing(out) as partial, partial.open("w", encoding="utf-8") as file:
        file.write(Template(before).substitute(values) + "[")
        for number, row in enumerate(rows):
            file.write(f"{',' if number else ''}\n{_json(row)}")
        file.write("]" + Template(after).substitute(values))
    return out


def _short_names(sources: Sequence[str]) -> Callable[[str], str]:
    """Gives each file its name or, where several have the same one, as in an archive's export, its
    path below the folder that holds all."""
    if len({Path(source).name for source in sources}) == len(sources):
        return lambda source: portable(Path(source).name)
    top = os.path.commonpath([os.path.dirname(os.path.abspath(source)) for source in sources])
    return lambda source: portable(os.path.relpath(source, top))


def _scored(
    detector: Detector,
    predictions: Sequence[Prediction],
    heatmap: str | None,
    name_of: Callable[[str], str],
) -> Iterator[Row]:
    """A row for each image with a score; the first ones with pictures."""
    facts = _Facts(detector)
    scored = [one for one in predictions if one.score is not None]
    pictures = _pictures(detector, [one.source for one in scored[:SHOWN]], heatmap)
    for prediction in scored:
        yield {
            "source": portable(prediction.source),
            "name": name_of(prediction.source),
            "score": prediction.score,
            "p_value": prediction.p_value,
            "flagged": prediction.flagged,
            "rarity": prediction.rarity,
            "facts": facts.of(prediction),
            **next(pictures, {}),
        }


def _unscored(unscored: Sequence[tuple[str, str]], name_of: Callable[[str], str]) -> Iterator[Row]:
    """Rows without a score: not applicable, unreadable, or left out of a folder."""
    for source, reason in unscored:
        name = portable(source)
        # Most reasons begin with the name, which stands beside them here.
        shown = portable(reason).removeprefix(name).lstrip(": ").removeprefix("not applicable: ")
        yield {
            "source": name,
            "name": name_of(source),
            **{"score": None, "p_value": None, "flagged": None, "reason": shown},
            "facts": [("Folder", str(Path(name).parent))],
        }


# --------------------------------------------------------------------- pictures


class _Shown(NamedTuple):
    """One image, read once for the page and for the method."""

    picture: bytes
    pixels: NDArray[np.uint8]  # (size, size)


def _pictures(detector: Detector, sources: Sequence[str], heatmap: str | None) -> Iterator[Row]:
    """Picture, heatmap of this kind and reconstruction of each image, or why there is none."""
    scale: tuple[float, float] | None = None
    with ThreadPoolExecutor(cores(), thread_name_prefix="worklist") as pool:
        for start in range(0, len(sources), AT_ONCE):
            some = sources[start : start + AT_ONCE]
            read = list(pool.map(lambda source: _look(detector, source), some))
            there = [one for one in read if isinstance(one, _Shown)]
            pixels = torch.from_numpy(np.array([one.pixels for one in there]))[:, None]
            heat = detector.explain(pixels, heatmap) if there and heatmap else None
            scale = shared_scale(heat) if heat is not None and scale is None else scale
            reconstructions = detector.reconstruct(pixels) if there else None
            place = 0
            for one in read:
                if not isinstance(one, _Shown):
                    yield {"note": one}
                    continue
                row: Row = {"picture": inlined(one.picture, "jpeg")}
                if heat is not None and scale is not None:
                    row["heat"] = inlined(_coloured(heat[place], scale))
                    row["calm"] = bool(_strength(heat[place], scale).max() < FAINT)
                if reconstructions is not None:
                    row["reconstruction"] = inlined(_gray(reconstructions[place]), "jpeg")
                place += 1
                yield row


def _look(detector: Detector, source: str) -> _Shown | str:
    """The image of a file, or why it cannot be read any more."""
    try:
        gray = read_gray(Path(source), reading=detector.reading)
    except DataError as error:
        return str(error)
    picture = gray.picture()
    share = min(1.0, SIDE / max(picture.size))
    small = max(1, round(share * picture.width)), max(1, round(share * picture.height))
    shown = picture.resize(small, PIL.Image.Resampling.BICUBIC)
    return _Shown(_jpeg(shown), resized(gray, detector.recipe.method.size).pixels)


def _strength(heat: NDArray[np.float32], scale: tuple[float, float]) -> NDArray[np.float32]:
    """A heatmap from 0 to 1 on a common scale. A flat one has no range: nothing stands out."""
    low, high = scale
    strength: NDArray[np.float32] = ((heat - low) / ((high - low) or 1.0)).clip(0, 1)
    return strength


def _coloured(heat: NDArray[np.float32], scale: tuple[float, float]) -> bytes:
    """A heatmap as PNG: the higher a value, the less transparent its colour."""
    indices = np.rint(255 * _strength(heat, scale)).astype(np.uint8)  # (h, w)
    picture = PIL.Image.frombytes("P", indices.shape[::-1], indices.tobytes())
    colours = np.rint(255 * colormaps[COLOURS](np.arange(256))[:, :3]).astype(np.uint8)
    picture.putpalette(colours.tobytes())
    stream = io.BytesIO()
    picture.save(stream, format="PNG", transparency=bytes(range(256)))
    return stream.getvalue()


def _gray(image: NDArray[np.float32]) -> bytes:
    return _jpeg(PIL.Image.fromarray(np.rint(255 * image.clip(0, 1)).astype(np.uint8)))


def _jpeg(picture: PIL.Image.Image) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, format="JPEG", quality=QUALITY)
    return stream.getvalue()


# ------------------------------------------------------------------------ facts


class _Facts:
    """What is shown of images beside their scores; nothing that names a patient."""

    def __init__(self, detector: Detector) -> None:
        self._studies: dict[str, int] = {}
        known = detector.calibration
        self._rarest = (
            f"fewer than 1 in {known.heldout}, with {known.heldout} {known.source}"
            if known.heldout
            else ""
        )

    def of(self, prediction: Prediction) -> list[tuple[str, str]]:
        """Names and values, the image's own first."""
        standardised = prediction.standardised
        pairs = [
            *self._dicom(Path(prediction.source)),
            ("Score", f"{prediction.score:.5g}"),
            ("Rarest that can be shown", self._rarest),
            ("Standardised", "" if standardised is None else f"{standardised:.3f}"),
            ("Folder", portable(str(Path(prediction.source).parent))),
            ("Done to read it", "; ".join(prediction.steps)),
            ("Warning", "; ".join(prediction.warnings)),
        ]
        return [(name, text) for name, text in pairs if text]

    def _dicom(self, path: Path) -> list[tuple[str, str]]:
        """Facts of a DICOM header. Studies are numbered as they come: a UID says who it is."""
        facts = read_facts(path)
        if facts is None:
            return []
        known = self._studies
        study = known.setdefault(facts.study_uid, len(known) + 1) if facts.study_uid else ""
        burned = "text is burned into the pixels" if facts.burned_in == "YES" else ""
        return [
            ("Study", str(study)),
            ("Image", " ".join(filter(None, (facts.modality, facts.body_part, facts.view)))),
            ("Sex and age", " ".join(filter(None, (facts.sex, facts.age)))),
            ("Machine", facts.manufacturer),
            ("Note", burned),
        ]


def _about(results: Results, predictions: Sequence[Prediction]) -> Row:
    """What the page's script must know of the whole list."""
    listed = repr((results.about.digest, [one.source for one in predictions]))
    return {
        "id": sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()[:16],
        "run": portable(results.about.run),
        "digest": results.about.digest,
        "no_picture": f"Only the {SHOWN} highest scores have a picture in this page.",
    }


def _summary(results: Results) -> str:
    """Method, calibration and counts in a line."""
    about, flagging = results.about, results.flagging
    threshold = f"threshold: {flagging.meaning}" if flagging.meaning else "not calibrated: no flags"
    return f"{about.method} · {results.counts} · {threshold}"


def _heatmap_note(detector: Detector, shown: DefaultHeatmap) -> str:
    """Why there is no heatmap, or another one than the method's first; '' where it is that one."""
    if not shown.reason:
        return ""
    if shown.kind is None:
        return f" · no heatmaps: {shown.reason}"
    first, other = (HEATMAP_NAMES[kind] for kind in (detector.heatmap_kinds[0], shown.kind))
    return f" · heatmaps: {other}, in the place of {first} ({shown.reason})"


def _limits(results: Results, listed: int) -> str:
    """What the page leaves out of a long list."""
    limits = f"The {SHOWN} highest scores have pictures."
    missing = results.counts.scored - listed
    return limits if missing <= 0 else f"{limits} {missing:,} with lower scores are not listed."


def _policy(style: str, script: str) -> str:
    """The content security policy: this style, this script and inlined pictures, and no network."""

    def digest(text: str) -> str:
        return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; img-src data:; style-src {digest(style)}; "
        f"script-src {digest(script)}; base-uri 'none'; form-action 'none'"
    )


def _json(value: object) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
