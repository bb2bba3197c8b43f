"""`squid watch`: every file is scored once, whatever ends the program in between."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import numpy as np
import PIL.Image
import pytest

from squid import durable
from squid.data import decode
from squid.detector import Detector
from squid.durable import locked
from squid.errors import BusyError, ConfigError, RunError
from squid.node import watch as watch_module
from squid.node.inbox import Inbox
from squid.node.watch import Watch
from squid.outputs.results import describe, flag_by_rate

SOURCE = Path(__file__).resolve().parents[2] / "src"


def image(path: Path, seed: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (24, 24)).astype(np.uint8)
    PIL.Image.fromarray(pixels).save(path, format="PNG")
    return path


@pytest.fixture(scope="module")
def detector(tiny_run: Path) -> Detector:
    return Detector.load(tiny_run, device="cpu", backend="torch")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "in").mkdir()
    return tmp_path / "in", tmp_path / "out"


@pytest.fixture
def watched(detector, tiny_run, folders):
    """watched(): a watch of those folders that takes files at once; its outcomes in a list."""

    def watched(**options):
        outcomes = []
        about = describe(tiny_run, detector, None)
        flagging = flag_by_rate(detector)
        watch = Watch(
            detector, flagging, about, *folders, still=0.0, report=outcomes.append, **options
        )
        return watch, outcomes

    return watched


def results(out: Path) -> dict[str, dict]:
    return {
        str(path.relative_to(out)): json.loads(path.read_text()) for path in out.rglob("*.json")
    }


def places(inbox: Path) -> Counter:
    """How often each input is anywhere in the folder."""
    files = (path for path in inbox.rglob("*") if path.is_file() and path.name != "lock")
    inputs = (path for path in files if path.parent != inbox / ".squid/attempts")
    return Counter(path.name for path in inputs if not path.name.endswith((".reason.txt", ".part")))


def test_a_result_says_what_it_is_of(watched, folders, detector):
    inbox, out = folders
    path = image(inbox / "study/a.png", 0)
    content = path.read_bytes()
    expected = detector.predict(path)[0]
    watch, outcomes = watched()
    assert watch.run(Event(), once=True) == 0
    assert [(one.name, one.reason) for one in outcomes] == [("study/a.png", "")]
    (name, result), *rest = results(out).items()
    assert (name, rest) == ("study/a.png.json", [])
    assert result["score"] == expected.score
    assert result["p_value"] == expected.p_value
    assert result["flagged"] == expected.flagged
    assert (result["image"], result["model"]) == ("study/a.png", detector.digest)
    assert (inbox / "done/study/a.png").read_bytes() == content


def test_what_cannot_be_read_fails_and_what_has_no_score_is_done(watched, folders):
    inbox, out = folders
    (inbox / "broken.png").write_bytes(b"no image")
    (inbox / "link.png").symlink_to("/etc/hostname")
    PIL.Image.new("L", (20, 20), 3).save(inbox / "flat.png")
    watched()[0].run(Event(), once=True)
    reason = (inbox / "failed/broken.png.reason.txt").read_text()
    assert reason.startswith("broken.png is not a readable image")
    assert "link or a device" in (inbox / "failed/link.png.reason.txt").read_text()
    assert list(results(out)) == ["flat.png.json"]
    assert results(out)["flat.png.json"]["status"] == "not applicable"
    assert (inbox / "done/flat.png").is_file()


@pytest.mark.filterwarnings("ignore::squid.data.levels.RangeWarning")
def test_a_result_holds_the_warnings_of_its_image(watched, folders):
    inbox, out = folders
    for seed in range(2):
        pixels = np.random.default_rng(seed).integers(0, 4096, (24, 24)).astype(np.uint16)
        PIL.Image.fromarray(pixels).save(inbox / f"{seed}.png")
    watched()[0].run(Event(), once=True)
    found = [one["warnings"] for one in results(out).values()]
    assert [text.split(" ")[0] for (text,) in found] == ["uses", "uses"]


def test_a_name_that_comes_again_has_a_result_of_its_own(watched, folders):
    inbox, out = folders
    watch, _ = watched()
    for seed in (0, 1, 0):
        image(inbox / "a.png", seed)
        watch.run(Event(), once=True)
    found = results(out)
    assert len(found) == 2
    assert len({one["sha256"] for one in found.values()}) == 2
    assert {one["image"] for one in found.values()} == {"a.png"}


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff.png"), "new\nline.png", "l" * 250 + ".png"])
def test_odd_names_have_results(watched, folders, name):
    inbox, out = folders
    image(inbox / name, 0)
    watched()[0].run(Event(), once=True)
    assert len(results(out)) == 1
    assert (inbox / "done" / name).is_file()


class Killed(BaseException):
    """The end of the program, in the middle of it."""


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
def test_a_kill_at_any_change_of_the_disk_loses_and_doubles_nothing(
    watched, folders, monkeypatch, after
):
    inbox, out = folders
    for round_ in range(20):
        before = set(results(out))
        image(inbox / f"{round_}/a.png", round_)
        (inbox / f"{round_}/broken.png").write_bytes(bytes([round_]))
        calls = 0

        def killing(change, round_=round_):
            def changed(*paths):
                nonlocal calls
                calls += 1
                if calls == round_ + 1 and not after:
                    raise Killed
                change(*paths)
                if calls == round_ + 1:
                    raise Killed

            return changed

        with monkeypatch.context() as patched:
            patched.setattr(durable.os, "rename", killing(os.rename))
            patched.setattr(durable.os, "replace", killing(os.replace))
            try:
                watched()[0].run(Event(), once=True)
            except Killed:
                killed = True
            else:
                killed = False
        # Each file is in one place, at the moment of the kill and when the next watch has ended.
        assert places(inbox) == {"a.png": round_ + 1, "broken.png": round_ + 1}
        watched()[0].run(Event(), once=True)
        assert set(results(out)) - before == {f"{round_}/a.png.json"}
        assert (inbox / f"done/{round_}/a.png").is_file()
        assert (inbox / f"failed/{round_}/broken.png.reason.txt").is_file()
        if not killed:
            break
    else:
        pytest.fail("no round was without a kill")
    assert round_ >= 6  # two files taken, two results or reasons written, two files moved


@contextmanager
def full_disk():
    """While it is open, no result can be written."""

    def full(path, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(watch_module, "write_text", full)
        yield


def test_a_full_disk_stops_in_a_sentence_and_loses_nothing(watched, folders):
    inbox, out = folders
    image(inbox / "a.png", 0)
    with full_disk(), pytest.raises(RunError, match="no space left for results"):
        watched()[0].run(Event(), once=True)
    assert (results(out), places(inbox)) == ({}, {"a.png": 1})
    watched()[0].run(Event(), once=True)
    assert list(results(out)) == ["a.png.json"]


def test_a_folder_has_one_watch(watched, folders):
    watch, _ = watched()
    with locked(Inbox(folders[0], 0).lock, "it"), pytest.raises(BusyError):
        watch.run(Event(), once=True)


def test_a_watch_that_is_to_stop_takes_nothing_more(watched, folders):
    inbox, out = folders
    image(inbox / "a.png", 0)
    stop = Event()
    stop.set()
    watched()[0].run(stop)
    assert (results(out), (inbox / "a.png").is_file()) == ({}, True)


def test_results_among_the_inputs_are_refused(detector, tiny_run, folders):
    about = describe(tiny_run, detector, None)
    with pytest.raises(ConfigError, match="results would be scored"):
        Watch(detector, flag_by_rate(detector), about, folders[0], folders[0] / "out")


def test_dicom_files_have_dicom_results(watched, folders, tmp_path):
    pydicom = pytest.importorskip("pydicom")
    examples = pytest.importorskip("pydicom.data")
    pytest.importorskip("highdicom")
    inbox, out = folders
    dataset = pydicom.dcmread(examples.get_testdata_file("CT_small.dcm"))
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1"
    dataset.Modality = "CR"
    dataset.save_as(inbox / "a.dcm")
    image(inbox / "b.png", 0)
    watched(dicom=True, gsps=True)[0].run(Event(), once=True)
    assert results(out)["a.dcm.json"]["dicom"] == "written"
    assert "not a DICOM file" in results(out)["b.png.json"]["dicom"]
    kinds = {pydicom.dcmread(path).Modality for path in (out / "dicom").iterdir()}
    assert kinds >= {"SR", "PR"}
    assert len(list((out / "dicom").iterdir())) == 3


@pytest.fixture
def study(folders) -> Path:
    """Four DICOM objects as a modality sends them: an image, its raw form, a report and a CT."""
    pydicom = pytest.importorskip("pydicom")
    examples = pytest.importorskip("pydicom.data")
    source = examples.get_testdata_file("CT_small.dcm")
    kinds = {
        "IM0": {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.1", "Modality": "CR"},
        "IM1": {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.1.1.1", "Modality": "DX"},
        "IM2": {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.88.33", "Modality": "SR"},
        "IM3": {},
    }
    (folders[0] / "study").mkdir()
    for name, elements in kinds.items():
        dataset = pydicom.dcmread(source)
        for keyword, value in elements.items():
            setattr(dataset, keyword, value)
        dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
        dataset.save_as(folders[0] / "study" / name)
    return folders[0]


def test_objects_that_are_no_radiographs_are_left_out_and_done(study, watched, folders):
    inbox, out = folders
    (inbox / "study/broken.dcm").write_bytes(b"no image")
    watch, outcomes = watched()
    watch.run(Event(), once=True)
    found = {
        name: (one["status"], one["reason"].split(",")[0]) for name, one in results(out).items()
    }
    assert found == {
        "study/IM0.json": ("scored", ""),
        "study/IM1.json": ("left out", "for processing"),
        "study/IM2.json": ("left out", "no radiograph (modality SR"),
        "study/IM3.json": ("left out", "no radiograph (modality CT"),
    }
    for name in ("IM0", "IM1", "IM2", "IM3"):
        digest = hashlib.sha256((inbox / "done/study" / name).read_bytes()).hexdigest()
        assert results(out)[f"study/{name}.json"]["sha256"] == digest
    assert results(out)["study/IM2.json"]["score"] is None
    assert [path.name for path in (inbox / "failed/study").glob("*.dcm")] == ["broken.dcm"]
    assert {one.name for one in outcomes if one.failed} == {"study/broken.dcm"}


def test_what_is_left_out_is_no_failure_of_the_command(study, squid, tiny_run, folders):
    words = ("watch", tiny_run, study, "--out", folders[1], "--once", "--settle", "0")
    code, printed, _ = squid(*words, "--device", "cpu")
    assert code == 0
    assert "left out  study/IM2: no radiograph (modality SR" in printed
    assert "failed" not in printed


def test_files_that_are_no_images_are_left_out_as_in_a_folder_that_is_scored(
    squid, tiny_run, folders
):
    inbox, out = folders
    image(inbox / "a.png", 0)
    for name, content in {"AUTORUN.INF": "[autorun]", "README.TXT": "Read me", "empty": ""}.items():
        (inbox / name).write_text(content)
    code, printed, _ = squid("score", tiny_run, inbox, "--device", "cpu", "--format", "json")
    left_out = {Path(one["image"]).name: one["reason"] for one in json.loads(printed)["left_out"]}
    assert (code, len(left_out)) == (0, 3)
    words = ("watch", tiny_run, inbox, "--out", out, "--once", "--settle", "0", "--device", "cpu")
    code, _, _ = squid(*words)
    found = results(out)
    assert (code, found["a.png.json"]["status"]) == (0, "scored")
    assert {
        name.removesuffix(".json"): one["reason"]
        for name, one in found.items()
        if one["status"] == "left out"
    } == left_out
    assert (inbox / "done/README.TXT").read_text() == "Read me"


# Files that end the program


def test_a_file_that_ends_the_program_is_tried_twice(watched, folders, monkeypatch):
    inbox, out = folders
    for number in range(4):
        image(inbox / f"{number}.png", number)
    read = decode.read_resized

    def killed(path, *rest, **options):
        if path.name == "2.png":
            raise Killed
        return read(path, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(decode, "read_resized", killed)
        for _ in range(2):
            with pytest.raises(Killed):
                watched()[0].run(Event(), once=True)
        watch, outcomes = watched()
        watch.run(Event(), once=True)
        assert "2.png" in {one.name for one in outcomes if one.failed}
    assert "ended the program twice" in (inbox / "failed/2.png.reason.txt").read_text()
    assert set(results(out)) == {"0.png.json", "1.png.json", "3.png.json"}
    assert sum(places(inbox).values()) == 4
    # It may be moved back, and then has two attempts again.
    (inbox / "failed/2.png").rename(inbox / "2.png")
    watched()[0].run(Event(), once=True)
    assert "2.png.json" in results(out)
    assert list((inbox / ".squid/attempts").iterdir()) == []


def test_a_full_disk_is_no_attempt(watched, folders):
    inbox, out = folders
    image(inbox / "a.png", 0)
    with full_disk():
        for _ in range(3):
            with pytest.raises(RunError, match="no space left"):
                watched()[0].run(Event(), once=True)
    watched()[0].run(Event(), once=True)
    assert list(results(out)) == ["a.png.json"]


CRASHING = """
import signal
from squid import cli
from squid.data import decode

read = decode.read_resized

def crash(path, *rest, **options):
    if path.name == "crash.png":
        signal.raise_signal(signal.SIGSEGV)  # in a thread that decodes
    return read(path, *rest, **options)

decode.read_resized = crash
cli.main()
"""


def test_a_crash_of_a_decoder_does_not_stop_the_watch_for_ever(tiny_run, folders):
    inbox, out = folders
    for number in range(3):
        image(inbox / f"{number}.png", number)
    image(inbox / "crash.png", 9)
    codes = []
    for _ in range(3):
        process = started(tiny_run, folders, "--settle", "0s", "--once", program=("-c", CRASHING))
        process.communicate(timeout=120)
        codes.append(process.returncode)
    assert codes == [-signal.SIGSEGV, -signal.SIGSEGV, 3]
    assert set(results(out)) == {f"{number}.png.json" for number in range(3)}
    assert "ended the program twice" in (inbox / "failed/crash.png.reason.txt").read_text()
    assert sum(places(inbox).values()) == 4


# The command


def started(run: Path, folders: tuple[Path, Path], *words: str, program=("-m", "squid")):
    command = [sys.executable, *program, "watch", run, folders[0], "--out", folders[1]]
    return subprocess.Popen(
        [*map(str, command), "--device", "cpu", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "200"},
    )


def wait(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_all_results_are_there_once_after_a_real_kill(tiny_run, folders):
    inbox, out = folders
    for number in range(120):
        image(inbox / f"{number // 40}/{number}.png", number)
    first = started(tiny_run, folders, "--settle", "0s")
    wait(lambda: len(list(out.rglob("*.json"))) >= 20 or first.poll() is not None)
    first.kill()
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    assert 20 <= len(list(out.rglob("*.json"))) < 120
    assert sum(places(inbox).values()) == 120
    second = started(tiny_run, folders, "--settle", "0s", "--once")
    _, errors = second.communicate(timeout=120)
    assert (second.returncode, errors) == (0, "")
    found = results(out)
    assert len(found) == len({one["sha256"] for one in found.values()}) == 120
    assert len(list((inbox / "done").rglob("*.png"))) == 120
    assert list((inbox / ".squid/work").iterdir()) == []


def test_sigterm_ends_a_watch_cleanly(tiny_run, folders):
    inbox, out = folders
    process = started(tiny_run, folders, "--settle", "0.2s")
    wait(lambda: (inbox / ".squid/lock").exists() or process.poll() is not None)
    image(inbox / "a.png", 0)
    wait(lambda: (inbox / "done/a.png").exists() or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "a.png" in printed
    assert not (inbox / ".squid/lock").exists()
    assert list(results(out)) == ["a.png.json"]


def test_the_command_once_says_what_failed(squid, tiny_run, folders):
    inbox, out = folders
    image(inbox / "a.png", 0)
    (inbox / "b.png").write_bytes(b"no image")
    words = ("watch", tiny_run, inbox, "--out", out, "--once", "--settle", "0", "--device", "cpu")
    code, printed, _ = squid(*words)
    assert code == 3
    assert "failed  b.png: b.png is not a readable image" in printed
    assert "score" in printed


def test_a_threshold_of_ones_own_and_what_does_not_go_together(squid, tiny_run, folders):
    inbox, out = folders
    image(inbox / "a.png", 0)
    words = ("watch", tiny_run, inbox, "--out", out, "--once", "--settle", "0", "--device", "cpu")
    for wrong in (("--rate", "0.1", "--threshold", "1"), ("--gsps",)):
        assert squid(*words, *wrong)[0] == 2
    assert squid(*words, "--threshold", "1e9")[0] == 0
    found = results(out)["a.png.json"]
    assert (found["threshold"], found["rate"], found["flagged"]) == (1e9, None, False)
    assert found["meaning"] == "chosen by hand"


@pytest.mark.parametrize("seconds", ["soon", "-1", "nan", "9999s"])
def test_a_time_that_is_none_is_refused(squid, tiny_run, folders, seconds):
    code, _, err = squid("watch", tiny_run, folders[0], "--out", folders[1], "--settle", seconds)
    assert (code, "give seconds, such as 5s" in err) == (2, True)
