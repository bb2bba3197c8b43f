"""Files that are no files, and names that programs trip over."""

import math
import os
import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from attacks.command import TOLERANCE, Scores, baseline, same, scores
from attacks.process import Outcome, squid
from attacks.record import Setting, Tally

NAMES = (
    "[bold]x.png", "none\\[/foo].png", "\x1b]0;title\x07.png", "\x1b[31mred.png", "a\nb.png",
    "a\rb.png", "a\tb.png", "=1+1.png", "+1.png", "-1.png", "@x.png", "=x.png", "a,b.png",
    '"quoted".png', "'single'.png", "\udcff\udcfe.png", "é.png", "‮gnp.exe.png", " .png",
    "%s%n.png", "$(touch x).png", "`touch x`.png", "x" * 251 + ".png", "nul.png",
)  # fmt: skip


def files(setting: Setting) -> Tally:
    """One strange entry in a folder of good images, or given by its own name."""
    tally, good = Tally("special files and names"), baseline(setting)
    places: dict[str, Callable[[Path], object]] = {
        "pipe.png": os.mkfifo,
        "socket.png": _socket,
        "folder.png": lambda path: path.mkdir(),
        "loop.png": lambda path: path.symlink_to(path),
        "dangling.png": lambda path: path.symlink_to("/nowhere"),
        "zero.png": lambda path: path.symlink_to("/dev/zero"),
        "random.png": lambda path: path.symlink_to("/dev/urandom"),
        "null.png": lambda path: path.symlink_to("/dev/null"),
        "memory.png": lambda path: path.symlink_to("/proc/self/mem"),
        "passwords.png": lambda path: path.symlink_to("/etc/passwd"),
        "up": lambda path: path.symlink_to(path.parent),
        "empty.png": lambda path: path.touch(),
        "sparse.png": lambda path: os.truncate(_touched(path), 2**40),
    }
    for name, make in setting.some(places).items():
        folder = Path(shutil.copytree(setting.images, setting.folder / "special"))
        make(folder / name)
        _both(tally, setting, folder, folder / name, good)
        shutil.rmtree(folder)
    for name in setting.some(dict.fromkeys(NAMES)):
        folder = Path(shutil.copytree(setting.images, setting.folder / "special"))
        image = min(setting.images.iterdir())
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(image, folder / name)
        _both(tally, setting, folder, folder / name, good)
        shutil.rmtree(folder)
    return tally


def _both(tally: Tally, setting: Setting, folder: Path, path: Path, good: Scores) -> None:
    """The folder that holds it, and the entry itself, printed and written."""
    out = setting.folder / "scores.csv"
    for words in (
        ("score", setting.run, folder, "--format", "csv"),
        ("score", setting.run, folder),
        ("score", setting.run, path, "--format", "csv"),
        ("score", setting.run, path, "--strict", "--out", out),
        ("explain", setting.run, path, "--out", setting.folder / "maps"),
    ):
        outcome = squid(*words)
        what = f"{words[0]} {path.name!r}"
        # A terminal shows tables and messages; CSV in a pipe is data, with names as they are.
        if any(char in outcome.err + outcome.out * ("csv" not in words) for char in "\x1b\x07"):
            tally.fault("wrong", f"{what}: control characters reach the terminal")
        if tally.note(outcome, what):
            tally.answer(_right(words, outcome, folder, good), f"{what}: other scores than before")
        out.unlink(missing_ok=True)


def _right(words: Sequence[object], outcome: Outcome, folder: Path, good: Scores) -> bool:
    """In a folder the good images keep their scores. By itself the entry is the first of them
    under another name, or leads to all of them."""
    if "csv" not in words:
        return True
    found = scores(outcome.out)
    if words[2] == folder:
        return same({name: found[name] for name in good if name in found}, good)
    known = [score for score, _ in good.values()]
    return all(
        any(math.isclose(score, one, rel_tol=TOLERANCE) for one in known)
        for score, _ in found.values()
    )


def _socket(path: Path) -> None:
    # Its address may have 108 bytes only, so it is made in place.
    before = Path.cwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)
    os.chdir(before)


def _touched(path: Path) -> Path:
    path.touch()
    return path
