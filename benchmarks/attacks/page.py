"""What is kept of each attack, and docs/reference/reliability.md, which is made from all of it."""

import fcntl
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attacks.process import LIMIT, MEMORY
from attacks.record import HANG, Tally

Kept = dict[str, dict[str, Any]]
"""What came of each attack, by its name on the command line."""


def keep(path: Path, name: str, tally: Tally, seed: int, seconds: float) -> None:
    """Put one attack into the file; the others in it stay, also where two programs write."""
    from squid.run import commit

    part = {
        **asdict(tally),
        "seed": seed,
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "minutes": round(seconds / 60, 1),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "hang_seconds": HANG,
        "memory_limit_gib": MEMORY // 2**30,
    }
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        kept: Kept = json.loads(file.read() or "{}")
        kept[name] = part
        file.truncate(0)
        file.write(json.dumps(dict(sorted(kept.items())), indent=2) + "\n")


def missing(kept: Mapping[str, object], names: Sequence[str]) -> list[str]:
    """Attacks without which the page is not complete."""
    return [name for name in names if name not in kept]


def page(kept: Kept, names: Sequence[str]) -> str:
    """docs/reference/reliability.md, with the attacks in the order of `names`."""
    parts = [kept[name] for name in names]
    rows = [
        f"| {one['name']} | {one['tried']:,} | {one['wrong']} | {one['tracebacks']} | "
        f"{one['hangs']} | {one['slowest']:.1f} | {one['peak_mib']:,} | {one['commit']} |"
        for one in parts
    ]
    total = sum(one["tried"] for one in parts)
    failed = sum(one["wrong"] + one["tracebacks"] + one["hangs"] for one in parts)
    evidence = [f"- {one['name']}: {line}" for one in parts for line in one["evidence"]]
    return "\n".join(
        [
            "<!-- Made by benchmarks/attack.py; do not edit. -->",
            "# Reliability",
            "",
            INTRODUCTION,
            "",
            "| Attack | Inputs tried | Wrong answers | Tracebacks | Hangs | Slowest (s) | "
            "Peak memory (MiB) | Commit |",
            "|---|---:|---:|---:|---:|---:|---:|---|",
            *rows,
            f"| **all** | **{total:,}** | **{sum(one['wrong'] for one in parts)}** | "
            f"**{sum(one['tracebacks'] for one in parts)}** | "
            f"**{sum(one['hangs'] for one in parts)}** | "
            f"**{max(one['slowest'] for one in parts):.1f}** | "
            f"**{max(one['peak_mib'] for one in parts):,}** | |",
            "",
            f"{failed:,} of {total:,} failed." if failed else f"None of {total:,} failed.",
            "",
            *(["## What failed", "", *evidence, ""] if evidence else []),
            _made(parts),
            "",
            NOT_COVERED,
        ]
    )


def _made(parts: Sequence[Mapping[str, Any]]) -> str:
    """How the table was made: command, seed, dates, machine."""
    known = {key: sorted({str(one[key]) for one in parts}) for key in ("seed", "date", "python")}
    minutes = sum(one["minutes"] for one in parts)
    return f"""\
## How it was made

```
python benchmarks/attack.py --seed {" ".join(known["seed"])} --write
```

{" to ".join(dict.fromkeys((known["date"][0], known["date"][-1])))}, Python \
{", ".join(known["python"])}, {parts[0]["machine"]}, {minutes:.0f} minutes in all. With `--only \
NAME` one attack is
repeated and the rows of the others stay; `Commit` is the state of the code that a row was made
with."""


INTRODUCTION = f"""\
`benchmarks/attack.py` gives the package what it must survive and counts what comes of it. The
attacks are drawn from a seed, so they can be repeated; `benchmarks/attacks/` has the code.

- **Inputs tried**: files, command lines, run folders; for the two rows of kills, processes that
  were killed before their end.
- **Wrong answers**: a result that differs from the right one, a file that was lost, cut or changed,
  an input that is neither scored nor named, a refusal without a sentence, control characters on a
  terminal.
- **Tracebacks**: a traceback, or an end by a signal that the attack did not send.
- **Hangs**: a call that takes more than {HANG:g} seconds of processor time and waiting; one that
  takes {LIMIT:g} is ended. Time in which other programs had the processor does not count. A call
  with 100 files is one call. On full disks and with planted links the seconds are those beyond a
  call that is not attacked, since a report and an export to ONNX take longer by themselves.
- **Slowest**: these seconds of the slowest call.
- **Peak memory**: resident memory of the largest process, of which Python and torch are about 400
  MiB. No process may have more than {MEMORY // 2**30} GiB of address space."""

NOT_COVERED = """\
## What is not covered

- GPUs and several processes in one training. Real losses of power: a kill does not empty the
  caches of the disk, so that a missing `fsync` would not be noticed here.
- DICOM files: `tests/data/dicom/test_damage.py` damages those, and
  `benchmarks/results/studies/dicom-damage.json` keeps what came of 10,000 of them.
- Archives and the receiver of images. `squid watch` is attacked by command lines only.
- Network file systems, and systems other than Linux.
- A detector of the size that is used: this one is small and trains in a second, so that memory and
  time of the network itself are not bounded by this table. Decoder threads add the memory of one
  image each.
- Defects of the decoders in Pillow, libtiff and libjpeg that corrupt memory without an end of the
  process. [Security](../../SECURITY.md) says what is trusted.
"""
