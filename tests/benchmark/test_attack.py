"""benchmarks/attack.py: what counts as a failure, and one attack from end to end."""

import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from squid.data import patients
from squid.data.folder import Folder
from squid.errors import DataError

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


def test_a_long_call_is_a_hang_beyond_a_sound_one_only(attacks: ModuleType) -> None:
    outcome = attacks.Outcome(code=0, out="", err="", seconds=9.0, peak_mib=400)
    tally = attacks.Tally("x")
    assert tally.note(outcome, "draws for nine seconds", sound=8.0)
    assert not tally.note(outcome, "draws for three seconds", sound=3.0)
    assert (tally.hangs, tally.slowest) == (1, 6.0)


def test_a_call_that_waits_is_a_hang_and_ends_with_what_it_started(attacks: ModuleType) -> None:
    process = import_module("attacks.process")

    def wait() -> None:
        child = subprocess.Popen(["sleep", "60"])
        os.write(1, str(child.pid).encode())
        child.wait()

    outcome = process.forked(wait, limit=0.5)
    assert outcome.timed_out
    assert outcome.waited >= 0.4
    attacks.Tally("x").note(outcome, "waits")
    assert _ended(int(outcome.out))


def _ended(pid: int) -> bool:
    """Whether it is gone, or will be as soon as somebody asks how it ended."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_kill_after_the_end_does_not_count(attacks: ModuleType) -> None:
    process = import_module("attacks.process")
    assert process.forked(lambda: time.sleep(30), kill_after=0.1).killed
    assert not process.forked(lambda: None, kill_after=5.0).killed


def test_parts_are_kept_beside_each_other(attacks: ModuleType, tmp_path: Path) -> None:
    page, file = import_module("attacks.page"), tmp_path / "kept.json"
    for name, tried in [("b", 3), ("a", 1), ("b", 2)]:
        page.keep(file, name, attacks.Tally(name.upper(), tried=tried), seed=0, seconds=60.0)
    kept = json.loads(file.read_text())
    assert {name: one["tried"] for name, one in kept.items()} == {"a": 1, "b": 2}
    assert page.missing(kept, ["a", "b", "c"]) == ["c"]
    text = page.page(kept, ["b", "a"])
    assert text.index("| B | 2 |") < text.index("| A | 1 |") < text.index("| **3** |")


@pytest.mark.parametrize(
    "names",
    [
        pytest.param("reader-fuzz command-files folder two-writers", id="quick"),
        *(
            pytest.param(names, marks=pytest.mark.slow, id=names)
            for names in ("reader-bombs special", "command-options", "kills", "disks", "links")
        ),
    ],
)
def test_a_small_share_of_every_attack_finds_nothing(tmp_path: Path, names: str) -> None:
    done = _attack(tmp_path, "--only", *names.split(), "--share", "0.005")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert len(lines) >= len(names.split())
    assert all("0 wrong, 0 tracebacks, 0 hangs" in line for line in lines)


def test_the_slow_expression_is_matched_until_it_is_stopped(
    attacks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_folders, images = import_module("attacks.run_folders"), tmp_path / "images"
    images.mkdir()
    (images / "a.png").touch()
    setting = attacks.Setting(tmp_path, Path(), Path(), images, seed=0, share=1.0)
    folder = Folder.model_validate(run_folders.slow_patient(setting))
    monkeypatch.setattr(patients, "SECONDS", 0.2)
    with pytest.raises(DataError, match="takes too long on 'aaa"):
        folder.load(48)


def test_a_share_is_not_kept(
    attacks: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attack.py", "--share", "0.5", "--write"])
    with pytest.raises(SystemExit):
        import_module("attack").main()
    assert "leave out --share" in capsys.readouterr().err


def _attack(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "benchmarks/attack.py", *options]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


AT_LEAST = {
    "reader-fuzz": 40_000,
    "command-files": 5_000,
    "command-options": 1_000,
    "kills-training": 40,
    "kills-scoring": 40,
}
"""Inputs, and kills, that the table must rest on."""


def test_the_table_is_made_from_full_attacks_without_a_failure(attacks: ModuleType) -> None:
    attack, page = import_module("attack"), import_module("attacks.page")
    kept = json.loads(attack.RESULT.read_text(encoding="utf-8"))
    assert kept.keys() == attack.ATTACKS.keys()
    assert {name: kept[name]["tried"] >= least for name, least in AT_LEAST.items()} == (
        dict.fromkeys(AT_LEAST, True)
    )
    for name, one in kept.items():
        assert one["tried"] > 0, name
        assert (one["wrong"], one["tracebacks"], one["hangs"]) == (0, 0, 0), one["evidence"]
        assert one["slowest"] <= one["hang_seconds"] == 5, name
        assert one["peak_mib"] < 1024 * one["memory_limit_gib"], name
    assert attack.PAGE.read_text(encoding="utf-8") == page.page(kept, list(attack.ATTACKS))
