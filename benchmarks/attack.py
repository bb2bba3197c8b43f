"""What does the package do with damaged files, hostile folders, full disks and kills?

    python benchmarks/attack.py [--only NAME ...] [--share 1.0] [--seed 0] [--write]

It trains a detector in a second, attacks it by every kind in `attacks/`, and prints what came of
each. With `--write` each attack is kept in `benchmarks/results/studies/reliability.json` as soon as
it has ended, beside those that are there, so that a run can be made in pieces, two of them at the
same time; once all are there, `docs/reference/reliability.md` is made from them. It exits with 1
where anything failed.
"""

import argparse
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: no threads, so that forks are whole
os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import PIL.Image
from attacks import command, disks, kills, links, readers, run_folders, special
from attacks.page import keep, missing, page
from attacks.process import must
from attacks.record import Attack, Setting, Tally

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "studies" / "reliability.json"
PAGE = ROOT / "docs" / "reference" / "reliability.md"

ATTACKS: dict[str, Attack] = {
    "reader-fuzz": readers.fuzz,
    "reader-bombs": readers.hostile,
    "command-files": command.files,
    "command-options": command.options,
    "special-files": special.files,
    "folder-weights": run_folders.weights,
    "folder-calibration": run_folders.calibration,
    "folder-recipe": run_folders.recipe,
    "folder-onnx": run_folders.onnx,
    "folder-manifest": run_folders.manifest,
    "kills-training": kills.training,
    "kills-scoring": kills.scoring,
    "planted-links": links.planted,
    "full-disks": disks.full,
    "two-writers": disks.two_writers,
}

RECIPE = ROOT / "tests" / "tiny.toml"
"""A recipe that trains in a second."""


def attack(names: Sequence[str], share: float, seed: int, result: Path | None) -> bool:
    """The named attacks, one after the other, each in a folder of its own and kept in `result`.
    Whether anything failed."""
    failed = False
    with tempfile.TemporaryDirectory(prefix="attack-") as temporary:
        folder = Path(temporary)
        recipe, images, run = folder / "recipe.toml", folder / "images", folder / "run"
        shutil.copy(RECIPE, recipe)
        _draw_images(images)
        if not all(name.startswith("reader") for name in names):
            _make_run(recipe, run)
        for name in names:
            own = folder / name
            own.mkdir()
            began = time.monotonic()
            tally = ATTACKS[name](Setting(own, run, recipe, images, seed, share))
            seconds = time.monotonic() - began
            _report(tally, seconds)
            if result is not None:
                keep(result, name, tally, seed, seconds)
            failed = failed or tally.failed > 0
            shutil.rmtree(own)
    return failed


def _make_run(recipe: Path, run: Path) -> None:
    """A detector, trained and evaluated."""
    _preload()
    must("train", recipe, "--out", run, "--device", "cpu")
    must("evaluate", run, "--device", "cpu")


def _draw_images(folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(6):
        pixels = rng.integers(0, 256, (60, 50), dtype=np.uint8)
        PIL.Image.fromarray(pixels).save(folder / f"good-{number}.png")


def _report(tally: Tally, seconds: float) -> None:
    print(
        f"{tally.name}: {tally.tried} tried, {tally.wrong} wrong, {tally.tracebacks} tracebacks, "
        f"{tally.hangs} hangs, {seconds:.0f} s",
        flush=True,
    )
    for line in tally.evidence:
        print(f"    {line}", flush=True)


def _preload() -> None:
    """Load once what every forked call needs. Nothing is computed here: threads do not survive."""
    for name in (
        "squid.cli", "squid.detector", "squid.training", "squid.report", "squid.convert",
        "squid.evaluation.evaluate", "squid.report.overlays", "sklearn.manifold",
        "sklearn.neighbors", "lightning_fabric",
    ):  # fmt: skip
        importlib.import_module(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="NAME", nargs="+", help="attacks whose name holds one")
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of tries")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="keep the results and make the page")
    options = parser.parse_args()
    if options.write and options.share != 1:
        parser.error("--write keeps full attacks; leave out --share")
    names = [name for name in ATTACKS if any(part in name for part in options.only or [""])]
    if not names:
        sys.exit(f"No attack's name holds {options.only}; known: {', '.join(ATTACKS)}.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what it started ends as well
    failed = attack(names, options.share, options.seed, RESULT if options.write else None)
    if options.write:
        write_page()
    sys.exit(int(failed))


def write_page() -> None:
    """Make the page, if every attack has been kept."""
    kept = json.loads(RESULT.read_text(encoding="utf-8"))
    if absent := missing(kept, list(ATTACKS)):
        print(f"The page is made once these are kept as well: {', '.join(absent)}.")
        return
    PAGE.write_text(page(kept, list(ATTACKS)), encoding="utf-8")


if __name__ == "__main__":
    main()
