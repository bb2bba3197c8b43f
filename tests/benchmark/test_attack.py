"""benchmarks/attack.py: what counts as a failure, and one attack from end to end."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("attacks.record")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"code": 2, "err": "squid: There is no file x.\n"}, None),
        ({"code": 0, "err": ""}, None),
        ({"code": 2, "err": ""}, "wrong"),
        ({"code": 1, "err": "Traceback (most recent call last):\nValueError: x\n"}, "tracebacks"),
        ({"code": -11, "err": ""}, "tracebacks"),
        ({"code": -9, "err": "", "timed_out": True}, "hangs"),
        ({"code": 0, "err": "", "seconds": 5.1}, "hangs"),
    ],
)
def test_what_counts_as_a_failure(
    attacks: ModuleType, changes: dict[str, object], kind: str | None
) -> None:
    outcome = attacks.Outcome(**{"out": "", "seconds": 0.1, "peak_mib": 400, **changes})
    tally = attacks.Tally("x")
    assert tally.note(outcome, "an input") == (changes["code"] == 0 and kind is None)
    counts = {name: getattr(tally, name) for name in ("wrong", "tracebacks", "hangs")}
    assert counts == {name: int(name == kind) for name in counts}
    assert tally.failed == len(tally.evidence) == int(kind is not None)


def test_damage_depends_on_the_seed_only_and_checksums_are_repaired(attacks: ModuleType) -> None:
    images = import_module("attacks.images")
    setting = attacks.Setting(*[Path()] * 4, seed=0, share=1.0)
    good = images.seeds()["png gray"]
    first, again = (images.damaged(good, setting.random("x/1")) for _ in range(2))
    assert first == again != images.damaged(good, setting.random("x/2"))
    assert images.repaired(good) == good
    broken = good[:40] + bytes([good[40] ^ 1]) + good[41:]
    assert images.repaired(broken) != broken


def test_an_attack_runs_and_reports(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/attack.py", "--only", "fuzz", "--share", "0.01"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    expected = "image reader: damaged files: 400 tried, 0 wrong, 0 tracebacks, 0 hangs"
    assert done.stdout.startswith(expected), done.stderr
    assert done.returncode == 0
