"""Links that were planted where the package will write, to a file elsewhere that no verb may
change."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from attacks.kills import OFTEN, interrupted
from attacks.process import must, squid
from attacks.record import Setting, Tally

PASSING = ("resume.pt", "resume.before.pt", ".lock")
"""Files that are there only while a training runs."""
LINKS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda place, victim: place.symlink_to(victim),
    "hard link": lambda place, victim: os.link(victim, place),
}
KEPT = "keep me\n"


@dataclass
class Call:
    """A call that writes where the links will be."""

    words: list[str | Path]
    before: Path | None = None
    """The run folder that it changes, as it is before."""
    sound: float = 0.0
    """Seconds that it takes without a link."""


Tries = dict[str, tuple[Call, str, str]]
"""Calls, names and kinds of links by what is tried."""


def planted(setting: Setting) -> Tally:
    """Every file that a verb writes, its temporary name and the locks are links."""
    tally = Tally("planted links")
    _in_runs(tally, setting)
    _beside_results(tally, setting)
    return tally


def _in_runs(tally: Tally, setting: Setting) -> None:
    """In a run folder, where each verb writes."""
    begun = interrupted(setting, setting.folder / "begun")
    good = setting.run
    verbs: dict[str, tuple[Path, tuple[str | Path, ...]]] = {
        "calibrate": (good, ("calibrate", "RUN", setting.images, "--name", "site", "--few")),
        "evaluate": (good, ("evaluate", "RUN")),
        "report": (good, ("report", "RUN")),
        "onnx": (good, ("score", "RUN", setting.images, "--backend", "onnx")),
        "train": (good, ("train", setting.recipe, "--out", "RUN", "--overwrite", *OFTEN)),
        "resume": (begun, ("train", "--resume", "RUN")),
    }
    run = setting.folder / "run"
    tries: Tries = {}
    for verb, (before, words) in verbs.items():
        shutil.copytree(before, run)
        there = _marks(run)
        call = Call(_for(words, run), before)
        call.sound = must(*call.words).seconds
        names = [name for name, mark in _marks(run).items() if there.get(name) != mark]
        shutil.rmtree(run)
        tries |= _each(verb, call, [*names, *PASSING])
    for call, name, link in setting.some(tries).values():
        assert call.before is not None
        shutil.copytree(call.before, run)
        _try(tally, setting, call, run / name, link)
        shutil.rmtree(run)


def _for(words: tuple[str | Path, ...], run: Path) -> list[str | Path]:
    return [run if word == "RUN" else word for word in words]


def _beside_results(tally: Tally, setting: Setting) -> None:
    """Where `score` and `explain` write, outside of a run folder."""
    results = setting.folder / "results"
    out, maps, first = results / "scores.csv", results / "maps", min(setting.images.iterdir())
    scoring = ("score", setting.run, setting.images)
    verbs: dict[str, tuple[str | Path, ...]] = {
        "out": (*scoring, "--out", out),
        "worklist": (*scoring, "--worklist", results / "list.html"),
        "explain": ("explain", setting.run, first, "--out", maps, "--values", "npy"),
    }
    tries: Tries = {}
    for verb, words in verbs.items():
        results.mkdir()
        call = Call(list(words))
        call.sound = must(*words).seconds
        names = [*_marks(results), ".scores.csv.journal", ".scores.csv.lock", "maps"]
        shutil.rmtree(results)
        tries |= _each(verb, call, names)
    for call, name, link in setting.some(tries).values():
        results.mkdir()
        _try(tally, setting, call, results / name, link)
        shutil.rmtree(results)


def _marks(folder: Path) -> dict[str, tuple[int, int]]:
    """What tells for each file whether it was written."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    stats = {str(path.relative_to(folder)): path.stat() for path in files}
    return {name: (one.st_ino, one.st_mtime_ns) for name, one in stats.items()}


def _some_of_each(names: list[str]) -> list[str]:
    """The first file of each kind in a folder within, such as one of all figures."""
    first: dict[object, str] = {}
    for name in sorted(names):
        path = Path(name)
        first.setdefault((path.parent, path.suffix) if len(path.parts) > 1 else name, name)
    return list(first.values())


def _each(verb: str, call: Call, names: list[str]) -> Tries:
    """A verb with a link of every kind at each name and at its guessable temporary name."""
    places = [f"{name}{ending}" for name in _some_of_each(names) for ending in ("", ".part")]
    return {f"{verb} {place} {link}": (call, place, link) for place in places for link in LINKS}


def _try(tally: Tally, setting: Setting, call: Call, place: Path, link: str) -> None:
    victim = setting.folder / "victim"
    victim.write_text(KEPT)
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    LINKS[link](place, victim)
    outcome = squid(*call.words)
    what = f"{' '.join(map(str, call.words[:2]))} with a {link} at {place.name}"
    if victim.read_bytes() != KEPT.encode():
        tally.fault("wrong", f"{what}: the file that it leads to was changed")
    tally.answered += tally.note(outcome, what, sound=call.sound)
