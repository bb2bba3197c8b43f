"""`squid score` through the command."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from squid.detector import Detector
from squid.methods.base import Method
from squid.outputs.files import COLUMNS, read_results

SQUID = Path(sys.executable).with_name("squid")


@pytest.fixture
def score(squid, run):
    """score(images, ...) -> exit code, stdout, stderr."""
    return lambda *words: squid("score", "--device", "cpu", run, *words)


# What it prints


def test_json_says_what_scored_and_how(score, run, images):
    code, out, err = score(images, "--format", "json")
    assert code == 0
    found = json.loads(out)
    assert found["run"] == str(run)
    assert (found["method"], found["calibration"], found["rate"]) == ("squid", "run", 0.1)
    assert len(found["digest"]) == 64
    rows = found["images"]
    assert {Path(row["image"]).name for row in rows} == {f"[bold]{i}.png" for i in range(3)}
    scores = [row["score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert [row["flagged"] for row in rows] == [value >= found["threshold"] for value in scores]
    assert all(1 / 13 <= row["p_value"] <= 1 for row in rows)
    assert {row["status"] for row in rows} == {"scored"}
    assert (found["skipped"], found["left_out"]) == ([], [])
    assert "3 found = 3 scored + 0 skipped + 0 left out + 0 not applicable" in err


def test_csv_and_file_and_table_agree(score, images, tmp_path):
    _, out, _ = score(images, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert tuple(rows[0]) == COLUMNS
    assert all(0 <= float(row["standardised"]) <= 1 for row in rows)
    assert len({(row["threshold"], row["rate"], row["model"]) for row in rows}) == 1
    file = tmp_path / "new" / "scores.csv"
    code, _, err = score(images, "--out", file)
    assert code == 0
    assert f"Written: {file}" in err
    assert list(csv.DictReader(file.read_text().splitlines())) == rows
    assert sorted(path.name for path in file.parent.iterdir()) == ["scores.csv"]
    _, out, _ = score(images)
    lines = out.splitlines()[1:]
    assert [line.split()[-1] for line in lines] == [row["image"] for row in rows]
    # The table rounds, but not so far that neighbours become equal.
    assert len({line.split()[0] for line in lines}) == len({row["score"] for row in rows})
    assert all(" 1 in " in line for line in lines)


def test_names_are_shown_whole_and_without_commands_for_the_terminal(score, tmp_path):
    folder = tmp_path / ("long name " * 20) / "ward [/bold] \\[x] :smile:"
    folder.mkdir(parents=True)
    save(folder / "a\x1b]0;title\x07\n\u202e.png")
    _, out, _ = score(folder)
    shown = str(folder / r"a\x1b]0;title\x07\n\u202e.png")
    assert out.splitlines()[1].endswith(shown)


def test_scores_in_half_precision_are_nearly_the_same(score, images):
    found = {}
    for precision in ("float32", "bf16"):
        _, out, _ = score(images, "--format", "json", "--precision", precision)
        found[precision] = {row["image"]: row["score"] for row in json.loads(out)["images"]}
    assert found["bf16"] != found["float32"]
    assert found["bf16"] == pytest.approx(found["float32"], rel=0.1, abs=0.05)


def test_twelve_bits_in_sixteen_are_noted(run, tmp_path):
    """The commonest export of a radiograph would else be scored as nearly black, in silence."""
    pixels = np.random.default_rng(0).integers(0, 4096, (60, 50)).astype(np.uint16)
    PIL.Image.fromarray(pixels).save(tmp_path / "twelve.png")
    words = ("score", run, tmp_path / "twelve.png", "--device", "cpu", "--format", "csv")
    done = subprocess.run([SQUID, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("note: ")
    assert "twelve.png" in done.stderr
    assert "RangeWarning" not in done.stderr


def test_a_score_above_all_held_out_ones_is_no_estimate(score, images):
    _, out, _ = score(images)
    assert all(" fewer than 1 in 12 " in line for line in out.splitlines()[1:])


@pytest.fixture
def dark(images):
    """Two of five images have 12 bits in words of 16."""
    for i in range(2):
        pixels = np.random.default_rng(i).integers(0, 4096, (60, 50)).astype(np.uint16)
        PIL.Image.fromarray(pixels).save(images / f"dark-{i}.png")
    return images


@pytest.mark.filterwarnings("ignore::squid.data.levels.RangeWarning")
def test_each_image_keeps_its_warnings_in_every_form(score, dark, tmp_path):
    code, out, err = score(dark, "--format", "json")
    assert code == 0
    found = {Path(row["image"]).name: row["warnings"] for row in json.loads(out)["images"]}
    warned = {name: some for name, some in found.items() if some}
    assert sorted(warned) == ["dark-0.png", "dark-1.png"]
    assert all(text.startswith("uses the values ") for (text,) in warned.values())
    assert f"note: 2 images have warnings, see the rows; the first is {dark}/dark-0.png\n" in err
    assert score(dark, "--out", tmp_path / "scores.csv")[0] == 0
    rows = {
        Path(row["image"]).name: row["warnings"] for row in read_results(tmp_path / "scores.csv")
    }
    assert rows == {name: "; ".join(some) for name, some in found.items()}
    lines = score(dark)[1].splitlines()
    for name, (text,) in warned.items():
        place = next(i for i, line in enumerate(lines) if line.endswith(name))
        assert lines[place + 1].strip() == text
    assert len(lines) == 1 + 5 + 2


def test_without_a_warning_nothing_is_said_of_them(score, images):
    assert "warning" not in score(images)[2]


# Every input is accounted for


def test_a_bad_file_costs_no_other_and_is_named(score, refused, run, images, tmp_path):
    bad = images / "bad.png"
    bad.write_bytes(b"not an image")
    PIL.Image.new("L", (40, 40)).save(images / "black.png")
    code, out, err = score(images, "--format", "json")
    assert code == 3
    found = json.loads(out)
    assert [row["image"] for row in found["skipped"]] == [str(bad)]
    assert [row["status"] for row in found["images"]] == ["scored"] * 3 + ["not applicable"]
    assert found["images"][-1]["score"] is None
    assert "one gray value" in found["images"][-1]["reason"]
    assert "5 found = 3 scored + 1 skipped + 0 left out + 1 not applicable" in err
    assert f"skipped {bad}" in err

    file = tmp_path / "scores.csv"
    assert score(images, "--out", file)[0] == 3
    status = [row["status"] for row in read_results(file)]
    assert status == ["scored"] * 3 + ["not applicable", "skipped"]
    assert "bad.png" in refused("score", run, images, "--strict", "--device", "cpu")


def test_a_name_that_is_not_utf_8_is_scored_and_written(score, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    save(Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.png")))
    assert score(folder, "--out", tmp_path / "scores.csv")[0] == 0
    assert score(folder, "--out", tmp_path / "scores.json")[0] == 0
    names = [row["image"] for row in read_results(tmp_path / "scores.csv")]
    assert names == [str(folder / r"\xff\xfe.png")]
    found = json.loads((tmp_path / "scores.json").read_text())
    assert [row["image"] for row in found["images"]] == names


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\uff1d"])
def test_a_spreadsheet_runs_no_file_name(score, tmp_path, monkeypatch, first):
    """`./` before a name names the same file, so a join survives."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path / f"{first}cmd.png")
    _, out, _ = score("--format", "csv", "--", f"{first}cmd.png")
    name = next(csv.DictReader(io.StringIO(out, newline="")))["image"]
    assert name == f"./{first}cmd.png"
    assert Path(name).is_file()


def test_steps_stand_in_every_form(score, images, tmp_path):
    PIL.Image.new("RGB", (60, 50), (9, 90, 200)).save(images / "colour.png")
    _, out, _ = score(images, "--steps", "--format", "json")
    steps = {row["image"]: row["steps"] for row in json.loads(out)["images"]}
    done = steps[str(images / "colour.png")]
    assert done
    assert score(images, "--steps", "--out", tmp_path / "scores.csv")[0] == 0
    rows = read_results(tmp_path / "scores.csv")
    assert {row["image"]: row["steps"] for row in rows} == {
        name: "; ".join(some) for name, some in steps.items()
    }
    _, out, _ = score(images, "--steps")
    lines = [line.strip() for line in out.splitlines()]
    place = next(i for i, line in enumerate(lines) if line.endswith("colour.png"))
    assert lines[place + 1 : place + 1 + len(done)] == done
    assert len(lines) == 1 + len(steps) + sum(map(len, steps.values()))
    # Unasked they stand in none.
    _, out, _ = score(images, "--format", "json")
    assert all("steps" not in row for row in json.loads(out)["images"])
    assert len(score(images)[1].splitlines()) == 1 + len(steps)


@pytest.mark.parametrize("content", [b"not an image", None])
def test_where_nothing_is_scored_the_exit_code_says_so(score, tmp_path, content):
    PIL.Image.new("L", (40, 40)).save(tmp_path / "one.png")  # of one gray value: not applicable
    if content is not None:
        (tmp_path / "one.png").write_bytes(content)
    code, out, err = score(tmp_path / "one.png")
    assert (code, out) == (3, "")
    assert "No image was scored" in err
    assert str(tmp_path / "one.png") in err


def test_a_report_alone_is_left_out_and_nothing_is_scored(score, tmp_path):
    """A report of a study, named by itself: nothing is wrong with it, and it has no score."""
    pydicom = pytest.importorskip("pydicom", reason="the extra dicom is not installed")
    report = pydicom.Dataset()
    report.file_meta = pydicom.dataset.FileMetaDataset()
    report.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    report.SOPClassUID = "1.2.840.10008.5.1.4.1.1.88.33"  # comprehensive SR
    report.SOPInstanceUID = report.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    report.Modality = "SR"
    report.save_as(tmp_path / "report.dcm", enforce_file_format=True)
    code, out, err = score(tmp_path / "report.dcm", "--format", "json")
    assert (code, json.loads(out)["images"]) == (3, [])
    assert "1 found = 0 scored + 0 skipped + 1 left out" in err
    assert "No image was scored" in err


# The target


def test_the_format_of_a_file_is_that_of_its_name(score, refused, run, images, tmp_path):
    file = tmp_path / "scores.json"
    assert score(images, "--out", file)[0] == 0
    assert len(json.loads(file.read_text())["images"]) == 3
    for words in (
        ("--out", file, "--format", "csv"),
        ("--out", tmp_path / "a.csv", "--format", "table"),
    ):
        assert "cannot be written as" in refused("score", run, images, *words)


def test_a_target_that_cannot_be_written_is_refused_before_scoring(refused, run, images, tmp_path):
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe.csv")
    assert "is a folder" in refused("score", run, images, "--out", tmp_path)
    assert "file" in refused("score", run, images, "--out", tmp_path / "file" / "a.csv")
    assert "a pipe" in refused("score", run, images, "--out", tmp_path / "pipe.csv")
    assert "recipe.toml" in refused("explain", run, images, "--out", run / "recipe.toml")


def test_mistakes_in_scoring(refused, run, images, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "No image was found" in refused("score", run, empty)
    assert "There is no file or folder" in refused("score", run, tmp_path / "no.png", "--strict")
    assert "Nothing to score" in refused("score", run)
    assert "One of the arguments is empty" in refused("score", run, "")
    assert "One of the arguments is empty" in refused("score", run, images, "--list", "")
    assert "is not a run folder" in refused("score", tmp_path, images)
    assert "between 0 and 1" in refused("score", run, images, "--rate", "10")
    assert "between 0 and 1" in refused("score", run, images, "--fdr", "0")
    assert "give one of them" in refused("score", run, images, "--rate", "0.1", "--fdr", "0.1")
    assert "A threshold is a number" in refused("score", run, images, "--threshold", "nan")
    words = ("--calibration", "elsewhere")
    assert "squid calibrate" in refused("score", run, images, *words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--rate", "10"), "between 0 and 1"),
        (("--rate", "nan"), "between 0 and 1"),
        (("--fdr", "0"), "between 0 and 1"),
        (("--threshold", "nan"), "A threshold is a number"),
        (("--dicom-out", "file"), "is not a folder"),
        (("--dicom-out", "file/below"), "is not a folder"),
        (("--dicom-out", "link"), "is not a folder"),
        (("--worklist", "list.pdf"), "name it list.html"),
        (("--worklist", "list"), "name it list.html"),
    ],
)
def test_mistakes_are_found_before_an_image_is_scored(
    refused, run, images, tmp_path, monkeypatch, words, sentence
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("squid.outputs.results.score_into", scores_nothing)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    assert sentence in refused("score", run, images, *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "images", "link", "run"]


def scores_nothing(*_, **__):
    raise AssertionError("images were scored")


# Thresholds


def test_any_rate_has_a_threshold_and_too_few_images_are_said(score, images):
    _, out, err = score(images, "--rate", "0.123", "--format", "json")
    assert json.loads(out)["rate"] == 0.123
    assert "cannot support" not in err
    _, _, err = score(images, "--rate", "0.01")
    assert "12 held-out healthy images cannot support a threshold that flags 1 %" in err
    assert ": highest of 12 held-out scores, too few to flag 1 % of healthy images" in err


def test_a_threshold_of_ones_own(score, images):
    _, out, _ = score(images, "--format", "json")
    highest = json.loads(out)["images"][0]["score"]
    _, out, _ = score(images, "--format", "json", "--threshold", str(highest))
    found = json.loads(out)
    assert (found["threshold"], found["rate"]) == (highest, None)
    assert found["images"][0]["flagged"]


def test_a_false_discovery_rate_says_where_it_cannot_work(score, images):
    _, out, err = score(images, "--format", "json", "--fdr", "0.05")
    found = json.loads(out)
    assert (found["threshold"], found["false_discovery_rate"]) == (None, 0.05)
    assert [row["flagged"] for row in found["images"]] == [False] * 3
    assert "The smallest p-value of 12 held-out images is 1 in 13" in err
    assert "unless at least 5 have it" in err


def test_a_false_discovery_rate_that_works_has_no_note(score, images):
    """Three of three have the smallest p-value, which is as many as it takes."""
    _, out, err = score(images, "--format", "json", "--fdr", "0.1")
    found = json.loads(out)
    assert [row["p_value"] for row in found["images"]] == [1 / 13] * 3
    assert [row["flagged"] for row in found["images"]] == [True] * 3
    assert "none is flagged" not in err


# A kill


@pytest.mark.slow
def test_a_killed_scoring_goes_on_to_the_same_file(score, run, tmp_path):
    """The real command, ended twice when some images are scored and not all."""
    folder, out = tmp_path / "many", tmp_path / "scores.csv"
    folder.mkdir()
    for i in range(600):
        save(folder / f"{i}.png", seed=i)
    assert score(folder, "--out", tmp_path / "whole.csv")[0] == 0
    out.write_text("an earlier result")
    code, err = ended(signal.SIGTERM, run, folder, out)
    assert code == 130
    assert err.endswith("Interrupted. What was scored is kept: the same command goes on.\n")
    code, err = ended(signal.SIGKILL, run, folder, out)
    assert code == -signal.SIGKILL
    assert "images were scored before; going on after them." in err
    assert out.read_text() == "an earlier result"
    assert score(folder, "--out", out)[0] == 0
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    left = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert left == ["scores.csv", "whole.csv"]


def test_a_scoring_does_not_go_on_with_another_backend_or_version(
    score, run, images, tmp_path, monkeypatch
):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

    def stopped(*_, **__):
        raise KeyboardInterrupt

    def noted():
        code, _, err = score(images, "--out", tmp_path / "scores.csv")
        assert code == 130
        return err

    monkeypatch.setattr("squid.outputs.results.describe", stopped)
    assert "before" not in noted()
    assert "3 images were scored before" in noted()
    monkeypatch.setattr("squid.cli.scoring.__version__", "another")
    assert "is begun anew" in noted()
    assert "3 images were scored before" in noted()
    Detector.load(run, backend="onnx")  # writes the file that `auto` then takes
    assert "is begun anew" in noted()
    assert "3 images were scored before" in noted()


def test_images_that_are_scored_by_each_other_are_all_scored_again(
    score, images, tmp_path, monkeypatch
):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    out = tmp_path / "scores.csv"
    with monkeypatch.context() as patched:
        patched.setattr("squid.outputs.results.describe", stopped)
        assert score(images, "--out", out)[0] == 130
    monkeypatch.setattr(Method, "scored_together", 64)
    code, _, err = score(images, "--out", out)
    assert code == 0
    assert "before" not in err


def ended(sent, run, folder, out):
    """Exit code and stderr of a command that gets a signal once it has scored some images."""
    journal = out.parent / ".scores.csv.journal"
    some = 5000 + (journal.stat().st_size if journal.exists() else 0)
    words = [SQUID, "score", "--device", "cpu", run, folder, "--out", out]
    # One thread, as here: the last digits of a score depend on their number.
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=one_thread)
    while process.poll() is None and not (journal.is_file() and journal.stat().st_size > some):
        time.sleep(0.001)
    process.send_signal(sent)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_paths_come_from_a_list_and_a_pipe(score, images, tmp_path, monkeypatch):
    (tmp_path / "list").write_text("".join(f"{path}\n" for path in sorted(images.iterdir())))
    _, out, _ = score("--list", tmp_path / "list", "--format", "json")
    rows = json.loads(out)["images"]
    assert len(rows) == 3
    piped = io.TextIOWrapper(io.BytesIO((tmp_path / "list").read_bytes()))
    monkeypatch.setattr("sys.stdin", piped)
    _, out, _ = score("-", "--format", "json")
    assert json.loads(out)["images"] == rows


def save(path, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (60, 50), dtype=np.uint8)
    PIL.Image.fromarray(pixels).save(path)
