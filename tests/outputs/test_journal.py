"""The journal: what a killed writer leaves, who may write, and what links do."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squid.detector import ScoredImage, Scores
from squid.errors import RunError
from squid.outputs.journal import NOT_APPLICABLE, SKIPPED, fingerprint, open_journal

INPUTS = {"model": "a", "files": "b"}


def scores(*values, start=0):
    return Scores(tuple(ScoredImage(f"{start + i}.png", v) for i, v in enumerate(values)))


def names(scored):
    return [one.source for one in scored.images]


def test_images_come_back_in_the_order_of_their_scores(tmp_path):
    some = Scores(
        (
            ScoredImage("a", 1.0, ("read", "resized")),
            ScoredImage("b", None, not_applicable="black"),
            ScoredImage("d", 2.0),
            ScoredImage("e", 2.0),
        ),
        (("c", "damaged"),),
    )
    with open_journal(tmp_path / "out.csv", INPUTS) as journal:
        journal.add(some, ["a", "b", "c", "d", "e"])
        assert [one.source for one in journal.images()] == ["d", "e", "a", "b"]
        assert next(one for one in journal.images() if one.source == "a") == some.images[0]
        assert list(journal.reasons(SKIPPED)) == [("c", "damaged")]
        assert list(journal.reasons(NOT_APPLICABLE)) == [("b", "black")]
        assert journal.scores.tolist() == [1.0, 2.0, 2.0]
    assert list(tmp_path.iterdir()) == []


def test_an_empty_one_has_no_images(tmp_path):
    with open_journal(None, INPUTS) as journal:
        assert (list(journal.images()), list(journal.reasons(SKIPPED))) == ([], [])
        assert journal.scores.shape == (0,)


def interrupted(target, scored, inputs=INPUTS):
    """A command that dies after it has scored some images."""
    with suppress(KeyboardInterrupt), open_journal(target, inputs) as journal:
        journal.add(scored, names(scored))
        raise KeyboardInterrupt


def test_it_goes_on_after_the_last_complete_line(tmp_path):
    target = tmp_path / "out.csv"
    interrupted(target, scores(1.0, 2.0))
    with open_journal(target, INPUTS, ["0.png", "1.png", "2.png"]) as journal:
        assert (journal.resumed, journal.replaced) == (2, False)
        more = scores(3.0, start=2)
        journal.add(more, names(more))
        assert [one.score for one in journal.images()] == [3.0, 2.0, 1.0]


def test_other_inputs_begin_anew(tmp_path):
    target = tmp_path / "out.csv"
    interrupted(target, scores(1.0, 2.0))
    with open_journal(target, INPUTS | {"model": "other"}) as journal:
        assert (journal.resumed, journal.replaced, len(journal)) == (0, True, 0)


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 400), tail=st.binary(max_size=20))
def test_whatever_a_killed_writer_left_a_line_is_whole_or_gone(tmp_path_factory, cut, tail):
    folder = tmp_path_factory.mktemp("journal")
    target, values = folder / "out.csv", [float(i) for i in range(4)]
    interrupted(target, scores(*values))
    path = folder / ".out.csv.journal"
    whole = path.read_bytes()
    path.write_bytes(whole[:cut] + tail)
    with open_journal(target, INPUTS, [f"{i}.png" for i in range(4)]) as journal:
        kept = journal.scores.tolist()
        rest = scores(*values[len(kept) :], start=len(kept))
        journal.add(rest, names(rest))
        assert kept == values[: len(kept)]
        assert path.read_bytes() == whole


WRONG = {
    "no number": {"score": float("nan")},
    "infinite": {"score": float("inf")},
    "a text": {"score": "1.0"},
    "an integer": {"score": 1},
    "scored without a score": {"score": None},
    "a score that has no meaning": {"kind": NOT_APPLICABLE},
    "an unknown kind": {"kind": 9},
    "a kind that is no number": {"kind": False},
    "another source": {"source": "0.png"},
    "steps that are no list": {"steps": "turned"},
    "warnings that are no texts": {"warnings": [1]},
    "no reason": {"reason": None},
}


@pytest.mark.parametrize("changed", WRONG.values(), ids=WRONG.keys())
def test_a_line_that_no_scoring_wrote_is_cut_off_with_all_after_it(tmp_path, changed):
    target, sources = tmp_path / "out.csv", ["0.png", "1.png", "2.png"]
    interrupted(target, scores(1.0, 2.0, 3.0))
    path = tmp_path / ".out.csv.journal"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = json.dumps({**json.loads(lines[2]), **changed}).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    with open_journal(target, INPUTS, sources) as journal:
        assert (journal.resumed, journal.scores.tolist()) == (1, [1.0])


@pytest.mark.parametrize("line", [b"null\n", b"[]\n", b"[" * 99_999 + b"\n", b"{}\n"])
def test_a_line_of_another_form_is_cut_off(tmp_path, line):
    target = tmp_path / "out.csv"
    interrupted(target, scores(1.0))
    with (tmp_path / ".out.csv.journal").open("ab") as file:
        file.write(line)
    with open_journal(target, INPUTS, ["0.png", "1.png"]) as journal:
        assert journal.resumed == 1


def test_lines_beyond_the_last_source_are_cut_off(tmp_path):
    target = tmp_path / "out.csv"
    interrupted(target, scores(1.0, 2.0))
    with open_journal(target, INPUTS, ["0.png"]) as journal:
        assert journal.resumed == 1


def test_warnings_are_kept_with_their_images(tmp_path):
    found = ("is nearly black",)
    some = Scores(
        (
            ScoredImage("a", 1.0),
            ScoredImage("b", None, not_applicable="black", warnings=found),
            ScoredImage("c", 2.0, warnings=found),
        )
    )
    interrupted(tmp_path / "out.csv", some)
    with open_journal(tmp_path / "out.csv", INPUTS, ["a", "b", "c"]) as journal:
        assert list(journal.warned()) == ["b", "c"]
        kept = {one.source: one.warnings for one in journal.images()}
        assert kept == {"a": (), "b": found, "c": found}


def test_a_command_that_scored_nothing_leaves_nothing(tmp_path):
    with pytest.raises(RunError), open_journal(tmp_path / "out.csv", INPUTS):
        raise RunError("no such run")
    assert list(tmp_path.iterdir()) == []


def test_a_second_writer_is_refused_at_once(tmp_path):
    with open_journal(tmp_path / "out.csv", INPUTS):
        script = (
            "import sys; from pathlib import Path; from squid.outputs.journal import open_journal\n"
            "with open_journal(Path(sys.argv[1]), {}): pass"
        )
        words = [sys.executable, "-c", script, tmp_path / "out.csv"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert f"BusyError: {tmp_path / 'out.csv'} is being written by process" in done.stderr


@pytest.mark.parametrize("plant", ["symlink", "link", "pipe"])
def test_a_planted_link_is_not_written_to(tmp_path, plant):
    victim, path = tmp_path / "victim", tmp_path / ".out.csv.journal"
    victim.write_text("precious")
    if plant == "symlink":
        path.symlink_to(victim)
    elif plant == "link":
        path.hardlink_to(victim)
    else:
        os.mkfifo(path)
    with pytest.raises((RunError, OSError)), open_journal(tmp_path / "out.csv", INPUTS):
        raise AssertionError
    assert victim.read_text() == "precious"


def test_a_fingerprint_changes_with_name_size_and_time(tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(b"1")
    os.utime(file, ns=(0, 0))
    prints = {fingerprint([file]), fingerprint([file, file]), fingerprint([Path("absent")])}
    os.utime(file, ns=(0, 1))
    prints.add(fingerprint([file]))
    file.write_bytes(b"22")
    os.utime(file, ns=(0, 1))
    prints.add(fingerprint([file]))
    assert len(prints) == 5
