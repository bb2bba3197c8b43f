"""A folder out of which each file is taken once: when, under which name, and where it ends."""

import os
from pathlib import Path

import pytest

from squid.errors import DataError
from squid.node import inbox as inbox_module
from squid.node.inbox import Inbox, shortened


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved: clock[0] += 1."""
    now = [100.0]
    monkeypatch.setattr(inbox_module.time, "monotonic", lambda: now[0])
    return now


def put(folder: Path, name: str, content: str = "x") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def names(folder: Path) -> list[str]:
    """Visible files below a folder."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return sorted(str(name) for name in found if not str(name).startswith("."))


def take_all(inbox: Inbox):
    return inbox.take(inbox.look())


def test_a_file_is_taken_when_it_has_been_still(tmp_path, clock):
    inbox = Inbox(tmp_path, still=5)
    growing = put(tmp_path, "a/b.png")
    assert inbox.look() == []
    clock[0] += 4.9
    assert inbox.look() == []
    growing.write_text("longer")
    clock[0] += 1
    assert (inbox.look(), inbox.waiting) == ([], 1)
    clock[0] += 4.9
    assert inbox.look() == []
    os.utime(growing, ns=(0, 0))  # the same size, another time
    clock[0] += 1
    assert inbox.look() == []
    clock[0] += 5
    assert (inbox.look(), inbox.waiting) == ([Path("a/b.png")], 0)


def test_the_oldest_come_first_and_hidden_and_finished_ones_are_left(tmp_path):
    for place, name in enumerate(("b.png", "a.png", ".part.png", "done/x.png", ".own/y.png")):
        os.utime(put(tmp_path, name), (place, place))
    assert Inbox(tmp_path, still=0).look() == [Path("b.png"), Path("a.png")]


def test_taken_files_are_found_again_after_a_kill(tmp_path):
    put(tmp_path, "a/b.png")
    (taken,) = take_all(Inbox(tmp_path, still=0))
    again = Inbox(tmp_path, still=0)
    assert again.look() == []
    (found,) = again.left_over()
    assert (found.name, found.path) == (Path("a/b.png"), taken.path)


def test_a_file_that_is_gone_is_left_out(tmp_path):
    path = put(tmp_path, "a.png")
    inbox = Inbox(tmp_path, still=0)
    found = inbox.look()
    path.unlink()
    assert inbox.take(found) == []


def test_names_that_come_again_lose_nothing(tmp_path):
    inbox = Inbox(tmp_path, still=0)
    for content in ("first", "second", "first"):
        put(tmp_path, "a/b.png", content)
        (taken,) = take_all(inbox)
        inbox.finish(taken, taken.digest())
    done = tmp_path / "done/a"
    assert (done / "b.png").read_text() == "first"
    (other,) = (path for path in done.iterdir() if path.name != "b.png")
    assert other.read_text() == "second"
    assert other.name.startswith("b-")
    assert other.suffix == ".png"


def test_a_file_in_place_of_a_folder_is_no_obstacle(tmp_path):
    inbox = Inbox(tmp_path, still=0)
    (first,) = (put(tmp_path, "a"), *take_all(inbox))[1:]
    inbox.finish(first, first.digest())
    (second,) = (put(tmp_path, "a/b.png", "y"), *take_all(inbox))[1:]
    inbox.finish(second, second.digest())
    assert names(tmp_path / "done") == ["a", "a_b.png"]


def test_a_failed_file_has_its_reason_beside_it(tmp_path):
    inbox = Inbox(tmp_path, still=0)
    put(tmp_path, "a/b.png")
    inbox.fail(take_all(inbox)[0], "It is broken.")
    assert names(tmp_path / "failed") == ["a/b.png", "a/b.png.reason.txt"]
    assert (tmp_path / "failed/a/b.png.reason.txt").read_text() == "It is broken.\n"
    assert inbox.left_over() == []
    assert list((tmp_path / ".squid/work").iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "new\nline.png",
        "[bold]=1+1.png",
        os.fsdecode(b"\xff\xfe.png"),
        "long" * 62 + ".png",
        "no ending",
    ],
)
def test_odd_names_move_as_they_are(tmp_path, name):
    inbox = Inbox(tmp_path, still=0)
    (tmp_path / name).write_text("x")
    (taken,) = take_all(inbox)
    inbox.fail(taken, "No.")
    assert (tmp_path / "failed" / name).read_text() == "x"
    assert (tmp_path / "failed" / f"{shortened(name)}.reason.txt").is_file()


def test_long_names_stay_apart_when_they_are_shortened():
    first, second = "a" * 240 + "1", "a" * 240 + "2"
    assert shortened(first) != shortened(second)
    assert len(os.fsencode(shortened(first))) <= 200
    assert shortened("short.png") == "short.png"


def test_links_and_pipes_are_taken_but_never_opened(tmp_path):
    secret = put(tmp_path, "outside/secret.png", "secret")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "file").symlink_to(secret)
    (folder / "folder").symlink_to(secret.parent)
    os.mkfifo(folder / "pipe")
    inbox = Inbox(folder, still=0)
    taken = take_all(inbox)
    assert [one.is_file for one in taken] == [False] * 3
    for one in taken:
        inbox.fail(one, "It is a link.")
    assert (folder / "failed/file").is_symlink()
    assert secret.read_text() == "secret"


@pytest.mark.parametrize("name", ["done", "failed", ".squid"])
def test_a_link_in_place_of_an_own_folder_is_refused(tmp_path, name):
    (tmp_path / "outside").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match="is a link"):
        Inbox(tmp_path / "in", still=0)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="There is no folder"):
        Inbox(tmp_path / "none", still=0)
