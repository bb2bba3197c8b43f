"""What does the package do with damaged files, hostile folders, full disks and kills?

    python benchmarks/attack.py [--only NAME] [--share 1.0] [--seed 0] [--write]

It trains a detector in a second, attacks it by every kind in `attacks/`, and prints a table. With
`--write` it also writes `benchmarks/results/studies/reliability.json` and
`docs/reference/reliability.md`. It exits with 1 where anything failed.
"""

import argparse
import importlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: no threads, so that forks are whole
os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import PIL.Image
from attacks import command, disks, kills, readers, run_folders, special
from attacks.process import MEMORY, WALL, squid
from attacks.record import HANG, Attack, Setting, Tally

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
    "folder-links": run_folders.links,
    "kills-training": kills.training,
    "kills-scoring": kills.scoring,
    "full-disks": disks.full,
    "two-writers": disks.two_writers,
}

RECIPE = """
title = "Digits in a second"

[data]
name = "digitanatomy"
train = 24
validation = 12
test = 8

[method]
name = "squid"
size = 48
grid = 3
width = 4
depth = 3
merge_level = 1
decoder_memory = "patch"
slots = 12
matrix_slots = 8
discriminator_width = 4
batch_size = 8
epochs = 2

[train]
snapshot_every = 1
augment = false
"""


def attack(names: Sequence[str], share: float, seed: int) -> list[Tally]:
    """The named attacks, one after the other, each in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="attack-") as temporary:
        folder = Path(temporary)
        recipe, images, run = folder / "recipe.toml", folder / "images", folder / "run"
        recipe.write_text(RECIPE)
        _draw_images(images)
        if not all(name.startswith("reader") for name in names):
            _make_run(recipe, run)
        tallies = []
        for name in names:
            own = folder / name
            own.mkdir()
            began = time.monotonic()
            tally = ATTACKS[name](Setting(own, run, recipe, images, seed, share))
            _report(tally, time.monotonic() - began)
            tallies.append(tally)
    return tallies


def _make_run(recipe: Path, run: Path) -> None:
    """A detector, trained and evaluated."""
    _preload()
    for words in (("train", recipe, "--out", run), ("evaluate", run)):
        outcome = squid(*words, "--device", "cpu")
        if outcome.code != 0:
            sys.exit(f"squid {words[0]} does not run: {outcome.err}")


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


def record(tallies: Sequence[Tally], share: float, seed: int, seconds: float) -> dict[str, Any]:
    """What is kept of a run of all attacks."""
    from squid.run import commit

    return {
        "command": f"python benchmarks/attack.py --share {share:g} --seed {seed} --write",
        "commit": commit(),
        "seed": seed,
        "share": share,
        "minutes": round(seconds / 60, 1),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "hang_seconds": HANG,
        "wall_seconds": WALL,
        "memory_limit_gib": MEMORY // 2**30,
        "attacks": [asdict(tally) for tally in tallies],
    }


def page(kept: Mapping[str, Any]) -> str:
    """docs/reference/reliability.md."""
    rows = [
        f"| {one['name']} | {one['tried']:,} | {one['refused']:,} | {one['answered']:,} | "
        f"{one['wrong']} | {one['tracebacks']} | {one['hangs']} | {one['slowest']:.1f} | "
        f"{one['peak_mib']:,} |"
        for one in kept["attacks"]
    ]
    total = sum(one["tried"] for one in kept["attacks"])
    failed = sum(one["wrong"] + one["tracebacks"] + one["hangs"] for one in kept["attacks"])
    highest = max(one["peak_mib"] for one in kept["attacks"])
    evidence = [f"- {one['name']}: {line}" for one in kept["attacks"] for line in one["evidence"]]
    return "\n".join(
        [
            "<!-- Made by benchmarks/attack.py; do not edit. -->",
            "# Reliability",
            "",
            INTRODUCTION,
            "",
            "| Attack | Tried | Refused | Answered | Wrong | Tracebacks | Hangs | Slowest (s) | "
            "Peak (MiB) |",
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            f"{total:,} inputs, {failed} failures; the highest memory of any process was "
            f"{highest:,} MiB.",
            "",
            *(["## What failed", "", *evidence, ""] if evidence else []),
            f"`{kept['command']}` at commit {kept['commit']}, Python {kept['python']}, "
            f"{kept['machine']}, {kept['minutes']:g} minutes.",
            "",
        ]
    )


INTRODUCTION = f"""\
`benchmarks/attack.py` gives the package what it must survive and counts what comes of it. The
attacks are drawn from a seed, so they can be repeated; `benchmarks/attacks/` has the code.

- **Refused**: one sentence, and an exit code that is not 0. **Answered**: a result.
- **Wrong**: a result that differs from the right one, a file that was lost or cut, an input that is
  neither scored nor named, a refusal without a sentence.
- **Hang**: more than {HANG:g} seconds of processor time for one call, or no end after {WALL:g}
  seconds by the clock. A call with 100 files is one call.
- **Slowest** is processor time of one call. **Peak** is resident memory of one process, about 400
  MiB of which are Python and torch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="NAME", default="", help="attacks whose name holds this")
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of tries")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write the table into the docs")
    options = parser.parse_args()
    names = [name for name in ATTACKS if options.only in name]
    if not names:
        sys.exit(f"No attack's name holds '{options.only}'; known: {', '.join(ATTACKS)}.")
    began = time.monotonic()
    tallies = attack(names, options.share, options.seed)
    if options.write:
        kept = record(tallies, options.share, options.seed, time.monotonic() - began)
        RESULT.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
        PAGE.write_text(page(kept), encoding="utf-8")
    sys.exit(int(any(tally.failed for tally in tallies)))


if __name__ == "__main__":
    main()
