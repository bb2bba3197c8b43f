#!/usr/bin/env python3
"""Are there known holes in what requirements.lock names? Exits with 1 where there are.

It asks PyPI by pip-audit, from an environment of its own. Where PyPI cannot be asked, it says so
and exits with 0: a closed network is no hole, and what was not checked is not called good.
"""

import json
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

LOCK = Path(__file__).resolve().parents[1] / "requirements.lock"
INSTALL, ASK = 120, 90
"""Seconds for each of the two steps."""


def pins(lock: str) -> list[str]:
    """NAME==VERSION lines; advisories know no builds, so torch 2.13.0+cpu becomes 2.13.0."""
    return re.findall(r"^([\w.-]+==[^\s+]+)", lock, re.MULTILINE)


def asked(folder: Path, wanted: list[str]) -> str:
    """What pip-audit reports, as JSON."""
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "pip-audit>=2.9"]
    subprocess.run(install, check=True, capture_output=True, timeout=INSTALL)
    (folder / "pins.txt").write_text("\n".join(wanted))
    options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--timeout", "10"]
    command = [python, "-m", "pip_audit", "-r", str(folder / "pins.txt"), *options, "-f", "json"]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=ASK, cwd=folder
    ).stdout


def holes_in(report: str) -> tuple[int, list[str]]:
    """How many packages the advisory database knows, and the holes."""
    known = [one for one in json.loads(report)["dependencies"] if "vulns" in one]
    holes = [
        f"{one['name']} {one['version']}: {hole['id']}, fixed in "
        f"{', '.join(hole['fix_versions']) or 'no version yet'}"
        for one in known
        for hole in one["vulns"]
    ]
    return len(known), holes


def main() -> int:
    wanted = pins(LOCK.read_text(encoding="utf-8"))
    try:
        with tempfile.TemporaryDirectory() as folder:
            audited, holes = holes_in(asked(Path(folder), wanted))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        print(f"audit: skipped, pip-audit gave no report ({type(error).__name__}).")
        return 0
    # An index that mirrors packages but no advisories answers, and knows nothing of any of them.
    if not audited:
        print("audit: skipped, no advisories can be reached from here.")
        return 0
    print(f"audit: {audited} of {len(wanted)} packages asked for, {len(holes)} known holes.")
    for hole in holes:
        print(f"audit: {hole}")
    return int(bool(holes))


if __name__ == "__main__":
    sys.exit(main())
