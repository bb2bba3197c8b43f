"""Does the fast training learn what the plain one learns: all that `auto` picks against nothing?

    python benchmarks/equality.py [--recipe FILE] [--epochs 100] [--seeds 3] [--set KEY=VALUE ...]

`fast` is compiled, replayed as a CUDA graph and in bf16; `plain` is none of these. All trainings
run at once, each in a process of its own; an interrupted one goes on, a finished one is read. The
script compares AUCs of the labelled validation images, for scores averaged over the snapshots; it
does not use the test images.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from speed import RESULTS, provenance

from squid.evaluation.metrics import auc
from squid.evaluation.selection import snapshot_aucs
from squid.recipe import read_recipe
from squid.run import Run

FORMS = {
    "fast": ["train.compile=true", "train.cuda_graph=true", "train.precision=bf16"],
    "plain": ["train.compile=false", "train.cuda_graph=false", "train.precision=float32"],
}


def start(form: str, seed: int, options: argparse.Namespace) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "squid", "train", "--device", options.device]
    out = folder(form, seed, options)
    if (out / "resume.pt").exists():
        return subprocess.Popen([*command, "--resume", str(out)], stdout=subprocess.DEVNULL)
    settings = [
        f"seed={seed}",
        f"method.epochs={options.epochs}",
        "method.target_updates=0",
        "method.members=1",
        f"train.snapshot_every={options.every}",
        *FORMS[form],
        *options.set,
    ]
    command += [str(options.recipe), "--out", str(out), "--overwrite"]
    for setting in settings:
        command += ["--set", setting]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def folder(form: str, seed: int, options: argparse.Namespace) -> Path:
    path: Path = options.runs / f"{form}-{seed}"
    return path


def measure(path: Path) -> dict[str, float]:
    """AUCs of the validation images: for scores averaged over the snapshots, and for the last."""
    run = Run.open(path)
    labels = run.recipe.data.load(run.recipe.method.size).validation.labels
    assert run.snapshots is not None
    scores = run.snapshots["validation"]
    seconds = sum(float(row["seconds"]) for row in run.history)
    aucs = snapshot_aucs(scores, labels)
    return {"averaged": auc(scores.mean(0), labels), "final": aucs[-1], "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", type=Path, default=Path("recipes/zhanglab.toml"))
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--every", type=int, default=5, help="epochs between snapshots")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs/equality"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    began = time.monotonic()
    jobs = [(form, seed) for form in FORMS for seed in range(options.seeds)]
    missing = [job for job in jobs if not Run(folder(*job, options)).finished]
    for process in [start(form, seed, options) for form, seed in missing]:
        process.wait()
    found = {form: [measure(folder(f, s, options)) for f, s in jobs if f == form] for form in FORMS}
    for form, rows in found.items():
        averaged = [100 * row["averaged"] for row in rows]
        spread = statistics.stdev(averaged) if len(averaged) > 1 else float("nan")
        print(f"{form:16} {statistics.mean(averaged):.1f} +- {spread:.1f}  {averaged}")
    recipe = read_recipe(options.recipe).model_dump(mode="json")
    result = provenance(options.device) | {"minutes": (time.monotonic() - began) / 60}
    result |= {"recipe": recipe, "epochs": options.epochs, "validation_auc": found}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "equality.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
