"""The worklist's page: what is in the file, and what a reader does with it in a real browser."""

import base64
import csv
import hashlib
import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from scipy.stats import spearmanr

from squid.detector import Detector
from squid.outputs.journal import open_journal
from squid.outputs.results import Results, describe, flag_by_rate, score_into
from squid.report import worklist
from squid.report.worklist import write_worklist

ActionChains = pytest.importorskip("selenium.webdriver", reason="no selenium").ActionChains

NASTY = "</script><script>alert(1)</script>.png"
"""A file name that would leave the data it stands in."""


def write_page(run: Path, folder: Path, out: Path) -> Results:
    detector = Detector.load(run, device="cpu", backend="torch")
    opened = detector.open([folder])
    with open_journal(None, {}) as journal:
        score_into(journal, detector, opened, on_error="skip")
        results = Results(
            detector, journal, flag_by_rate(detector, 0.2), describe(run, detector, None), opened
        )
        write_worklist(detector, results, out)
        return results


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory, tiny_run: Path) -> Path:
    """Images of digits, one of them with the name of an attacker, one flat, one no image."""
    folder = tmp_path_factory.mktemp("study")
    pixels = Detector.load(tiny_run, device="cpu").recipe.data.load(48).test.pixels[:, 0].numpy()
    for number, image in enumerate(pixels[:11]):
        PIL.Image.fromarray(image).resize((96, 64)).save(folder / f"image {number}.png")
    noise = np.random.default_rng(0).integers(0, 255, (700, 600)).astype(np.uint8)
    PIL.Image.fromarray(noise).save(folder / NASTY.replace("/", "\u2215"))
    PIL.Image.new("L", (40, 40), 9).save(folder / "flat.png")
    (folder / "broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="session")
def written(study: Path, tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("worklist") / "worklist.html"
    write_page(tiny_run, study, out)
    return out


def rows_of(page: Path) -> list[dict[str, Any]]:
    (data,) = re.findall(r'id="rows">(.*?)</script>', page.read_text("utf-8"), flags=re.DOTALL)
    rows: list[dict[str, Any]] = json.loads(data)
    return rows


# The file


def test_every_input_has_a_row_the_most_anomalous_first(written: Path) -> None:
    rows = rows_of(written)
    scores = [row["score"] for row in rows if row["score"] is not None]
    assert len(scores) == 12
    assert scores == sorted(scores, reverse=True)
    reasons = {row["name"]: row["reason"] for row in rows if row["score"] is None}
    assert reasons == {
        "flat.png": "all pixels have one gray value",
        "broken.png": "is not a readable image (not a PNG, JPEG, TIFF, BMP or DICOM file).",
    }


@pytest.mark.filterwarnings("ignore::squid.data.levels.RangeWarning")
def test_a_warning_stands_beside_its_image(tiny_run: Path, tmp_path: Path) -> None:
    dark = np.random.default_rng(0).integers(0, 4096, (60, 50)).astype(np.uint16)
    for name, pixels in (("dark", dark), ("fine", dark << 4)):
        PIL.Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    write_page(tiny_run, tmp_path, tmp_path / "page.html")
    facts = {row["name"]: dict(row["facts"]) for row in rows_of(tmp_path / "page.html")}
    assert facts["dark.png"]["Warning"].startswith("uses the values ")
    assert "Warning" not in facts["fine.png"]


def test_a_name_cannot_leave_its_place(written: Path) -> None:
    text = written.read_text("utf-8")
    assert "<script>alert" not in text
    assert any("<script>alert(1)" in row["name"] for row in rows_of(written))


def test_a_score_above_all_held_out_ones_is_no_estimate(written: Path, tiny_run: Path) -> None:
    highest = Detector.load(tiny_run, device="cpu").calibration.heldout_scores[-1]
    scored = [row for row in rows_of(written) if row["score"] is not None]
    above = [row["rarity"] for row in scored if row["score"] > highest]
    assert above
    assert set(above) == {"fewer than 1 in 12"}
    assert all(row["rarity"].startswith("1 in ") for row in scored if row["score"] <= highest)
    facts = dict(scored[0]["facts"])
    assert facts["Rarest that can be shown"] == "fewer than 1 in 12, with 12 validation normals"


def test_the_policy_names_this_style_and_this_script_only(written: Path) -> None:
    text = written.read_text("utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src 'none'; img-src data:; ")
    for element in ("style", "script"):
        (inside,) = re.findall(rf"<{element}>(.*?)</{element}>", text, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", text)


def decoded(row: dict[str, Any], kind: str) -> PIL.Image.Image:
    return PIL.Image.open(io.BytesIO(base64.b64decode(row[kind].partition(",")[2])))


@pytest.mark.parametrize("measured", [0.9, 0.468])
def test_a_heatmap_that_was_measured_to_show_nothing_is_not_shown(
    run: Path, tmp_path: Path, measured: float
) -> None:
    """The first kind that finds known anomalies is shown; where none does, the page has no heatmap
    and says why."""
    detector = Detector.load(run, device="cpu", backend="torch")
    record = json.loads((run / "metrics.json").read_text())
    at_chance = dict.fromkeys(detector.heatmap_kinds, 0.468)
    digits = record["by_selection"]["final"]["digits"][0]
    digits["localisation"] = at_chance | {"residual": measured}
    (run / "metrics.json").write_text(json.dumps(record))
    images = detector.recipe.data.load(48).test.pixels[:3, 0].numpy()
    (folder := tmp_path / "images").mkdir()
    for number, image in enumerate(images):
        PIL.Image.fromarray(image).save(folder / f"{number}.png")
    write_page(run, folder, page := tmp_path / "page.html")
    rows, text = rows_of(page), page.read_text("utf-8")
    assert all(row["picture"] for row in rows)
    if measured > 0.5:
        (place,) = (i for i in range(3) if rows[0]["name"] == f"{i}.png")
        heat = np.asarray(decoded(rows[0], "heat")).astype(float)
        residual = detector.explain(images[place], "residual")[0]
        inside = (heat > 0) & (heat < 255)  # of the scale that all images share
        assert spearmanr(heat[inside], residual[inside]).statistic > 0.95
        assert "heatmaps: residual, in the place of" in text
    else:
        assert not any("heat" in row for row in rows)
        assert "no heatmaps: localisation AUC 46.8, guessing gives 50.0" in text


def test_pictures_are_bounded_and_keep_their_shape(written: Path) -> None:
    by_name = {row["name"]: row for row in rows_of(written) if row["score"] is not None}
    (large,) = (row for name, row in by_name.items() if "alert" in name)
    assert decoded(large, "picture").size == (439, 512)
    assert decoded(by_name["image 0.png"], "picture").size == (96, 64)
    heat = decoded(large, "heat")
    assert (heat.size, heat.mode) == ((48, 48), "P")
    assert heat.info["transparency"] == bytes(range(256))
    assert decoded(large, "reconstruction").size == (48, 48)


def test_files_of_one_name_are_distinguished_by_their_folders(
    study: Path, tiny_run: Path, tmp_path: Path
) -> None:
    for number, source in enumerate(sorted(study.glob("image *.png"))[:3]):
        series = tmp_path / f"new/ST{number}/SE0"
        series.mkdir(parents=True)
        (series / "IM0").write_bytes(source.read_bytes())
    (tmp_path / "new/ST0/SE0/notes.txt").write_text("notes")
    write_page(tiny_run, tmp_path / "new", tmp_path / "page.html")
    names = {row["name"] for row in rows_of(tmp_path / "page.html")}
    assert names == {"ST0/SE0/notes.txt", "ST0/SE0/IM0", "ST1/SE0/IM0", "ST2/SE0/IM0"}


def test_only_the_highest_scores_have_pictures(
    study: Path, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worklist, "SHOWN", 5)
    monkeypatch.setattr(worklist, "AT_ONCE", 2)
    write_page(tiny_run, study, tmp_path / "few.html")
    shown = ["picture" in row for row in rows_of(tmp_path / "few.html") if row["score"] is not None]
    assert shown == [True] * 5 + [False] * 7


def test_a_long_list_says_what_it_leaves_out(
    study: Path, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worklist, "LISTED", 4)
    write_page(tiny_run, study, tmp_path / "short.html")
    assert "8 with lower scores are not listed" in (tmp_path / "short.html").read_text("utf-8")
    assert sum(row["score"] is not None for row in rows_of(tmp_path / "short.html")) == 4


def test_a_file_that_is_gone_has_a_note_instead_of_a_picture(
    study: Path, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_gray = worklist.read_gray

    def vanished(path: Path, **options: Any) -> Any:
        return read_gray(path.with_name("gone") if path.name == "image 3.png" else path, **options)

    monkeypatch.setattr(worklist, "read_gray", vanished)
    write_page(tiny_run, study, tmp_path / "page.html")
    rows = {row["name"]: row for row in rows_of(tmp_path / "page.html")}
    assert "picture" not in rows["image 3.png"]
    assert "cannot be read" in rows["image 3.png"]["note"]
    assert "picture" in rows["image 4.png"]


def test_dicom_gives_facts_but_no_names(tiny_run: Path, tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    examples = pytest.importorskip("pydicom.data")
    dataset = pydicom.dcmread(examples.get_testdata_file("CT_small.dcm"))
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1"
    dataset.PatientName, dataset.PatientID, dataset.Modality = "Roe^Jane", "J-4711", "CR"
    dataset.ViewPosition, dataset.BodyPartExamined, dataset.PatientAge = "PA", "CHEST", "045Y"
    study = tmp_path / "study"
    study.mkdir()
    dataset.save_as(study / "a.dcm")
    write_page(tiny_run, study, tmp_path / "page.html")
    (row,) = rows_of(tmp_path / "page.html")
    facts = dict(row["facts"])
    assert (facts["Study"], facts["Image"]) == ("1", "CR CHEST PA")
    assert facts["Sex and age"].endswith("045Y")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert not any(secret in text for secret in ("Roe", "4711", dataset.StudyInstanceUID))


def test_the_command_writes_the_page(squid, study, tiny_run, tmp_path):
    page = tmp_path / "pages" / "list.html"
    code, _, err = squid("score", tiny_run, study, "--worklist", page, "--device", "cpu")
    assert code == 3  # one file could not be read
    assert f"Worklist: {page}" in err
    assert len(rows_of(page)) == 14


def test_a_folder_is_refused_before_anything_is_scored(squid, study, tiny_run, tmp_path):
    code, _, err = squid("score", tiny_run, study, "--worklist", tmp_path)
    assert (code, "is a folder; name a file in it" in err) == (2, True)


# The page in a browser

SCREEN = {"width": 1300, "height": 850, "deviceScaleFactor": 1, "mobile": False}


@pytest.fixture
def page(browser: Any, written: Path) -> Iterator[Any]:
    """The page as it is opened for the first time."""
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SCREEN)
    browser.get(written.as_uri())
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    wait(browser, "return shaded !== null")
    browser.get_log("performance")
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.get_log("browser") == []


def wait(browser: Any, condition: str) -> None:
    end = time.monotonic() + 10
    while not browser.execute_script(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.02)


def press(browser: Any, *keys: str) -> None:
    # To what has the focus: an element that is named would be given it.
    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def texts(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
    found: list[str] = browser.execute_script(script, selector)
    return found


def pixels(browser: Any) -> np.ndarray:
    """(n, 4) of the canvas as it is seen."""
    script = (
        "const seen = document.getElementById('canvas');"
        "const copy = new OffscreenCanvas(seen.width, seen.height);"
        "const context = copy.getContext('2d', { willReadFrequently: true });"
        "context.drawImage(seen, 0, 0);"
        "const all = context.getImageData(0, 0, copy.width, copy.height).data;"
        "return [...all].filter((_, i) => i % 64 < 4)"
    )
    return np.array(browser.execute_script(script)).reshape(-1, 4)


pytestmark = pytest.mark.browser


def test_the_list_is_sorted_and_the_first_image_is_open(page: Any, written: Path) -> None:
    names = [row["name"] for row in rows_of(written) if row["score"] is not None]
    assert texts(page, "#list .file") == names
    assert texts(page, "#name") == [names[0]]
    assert texts(page, "[data-filter] b")[0] == "12"
    assert "not a medical device" in texts(page, ".warning")[0]
    rare = r"(fewer than )?1 in [\d.]+ healthy images scores this high"
    assert re.fullmatch(rare, texts(page, "#rarity")[0])


def test_the_page_makes_no_request_but_for_itself(page: Any, written: Path) -> None:
    page.refresh()
    wait(page, "return shaded !== null")
    press(page, "j", "r", "i", "?", "?")
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
    assert written.as_uri() in sent
    assert [url for url in sent if not url.startswith((written.as_uri(), "data:"))] == []
    blocked = page.execute_async_script(
        "const done = arguments[0];"
        "fetch('http://127.0.0.1:9/').then(() => done('sent'), (error) => done(error.message))"
    )
    assert blocked == "Failed to fetch"
    assert "Content Security Policy" in page.get_log("browser")[0]["message"]


def test_keys_go_through_the_list(page: Any) -> None:
    first, second, third = texts(page, "#list .file")[:3]
    press(page, "j")
    assert texts(page, "#name") == [second]
    press(page, "j", "k", "k", "k")
    assert texts(page, "#name") == [first]
    assert page.execute_script("return document.activeElement.dataset.row") == "0"
    assert texts(page, "#list .mark")[:4] == ["seen", "seen", "seen", ""]
    page.find_element("css selector", "[data-filter=unread]").click()
    assert len(texts(page, "#list .file")) == 12 - 3
    assert third not in texts(page, "#list .file")


def test_the_heatmap_is_there_only_while_it_is_held(page: Any) -> None:
    page.execute_script("open(rows.findIndex((row) => row.heat && !row.calm))")
    wait(page, "return pictures.picture.src === rows[current].picture")
    actions = ActionChains(page)
    before = pixels(page)
    assert (before[:, :3] == before[:, :1]).all()  # gray
    actions.key_down("h").perform()
    held = pixels(page)
    assert not (held[:, :3] == held[:, :1]).all()
    actions.key_up("h").perform()
    assert (pixels(page) == before).all()
    button = page.find_element("id", "heat")
    actions.click_and_hold(button).perform()
    assert (pixels(page) == held).all()
    actions.release().perform()
    assert (pixels(page) == before).all()


def test_a_calm_heatmap_says_that_nothing_stands_out(page: Any, written: Path) -> None:
    calm = [number for number, row in enumerate(rows_of(written)) if row.get("calm")]
    assert calm  # the method finds nothing in some images
    page.execute_script(f"open({calm[0]})")
    wait(page, "return pictures.picture.src === rows[current].picture")
    ActionChains(page).key_down("h").perform()
    assert "nothing stands out beside the other images" in texts(page, "#message")[0]
    ActionChains(page).key_up("h").perform()


def test_inverting_and_windowing_change_values_as_computed(page: Any) -> None:
    # The picture itself, before it is enlarged.
    shaded = (
        "const c = shaded.image, all = c.getContext('2d').getImageData(0, 0, c.width, c.height);"
        "return [...all.data].filter((_, i) => i % 4 == 0)"
    )
    plain = np.array(page.execute_script(shaded), dtype=float)
    assert len(np.unique(plain)) > 20
    press(page, "i")
    assert np.array_equal(page.execute_script(shaded), 255 - plain)
    press(page, "i")
    canvas = page.find_element("id", "canvas")
    # A right drag: 100 to the left makes the window narrower, 40 up makes the level lower.
    for kind, x, y in (("Pressed", 400, 300), ("Moved", 300, 260), ("Released", 300, 260)):
        box = canvas.rect
        place = {"x": box["x"] + x - 100, "y": box["y"] + y - 100}
        event = {"type": f"mouse{kind}", **place, "button": "right", "buttons": 2, "clickCount": 1}
        page.execute_cdp_cmd("Input.dispatchMouseEvent", event)
    level, window = page.execute_script("return [view.level, view.window]")
    assert (level, window) == (87.5, 155)
    expected = np.clip(255 * (plain - (87.5 - 155 / 2)) / 155, 0, 255)
    assert np.abs(np.array(page.execute_script(shaded)) - expected).max() <= 0.5
    assert "level 88, window 155 of 8 bits" in texts(page, "#message")[0]
    page.find_element("id", "reset").click()
    assert np.array_equal(page.execute_script(shaded), plain)


def test_zoom_and_fit(page: Any) -> None:
    before = pixels(page)
    press(page, "+", "+")
    assert page.execute_script("return view.zoom") == pytest.approx(1.25**2)
    assert not np.array_equal(pixels(page), before)
    press(page, "-", "1")
    assert np.array_equal(pixels(page), before)


def test_a_reconstruction_is_shown_beside_the_image(page: Any) -> None:
    press(page, "r")
    wait(page, "return Boolean(shaded.beside)")
    assert texts(page, "#message") == ["left: image, right: reconstruction"]
    press(page, "r")
    assert page.execute_script("return !shaded.beside")


def test_answers_are_kept_and_exported(page: Any, written: Path, tmp_path: Path) -> None:
    press(page, "a", "j", "d", "j", "u", "j", "a", "a")
    page.refresh()
    wait(page, "return shaded !== null")
    marks = texts(page, "#list .mark")
    assert marks[:5] == ["\u2713 agree", "\u2715 disagree", "? unsure", "seen", ""]
    downloads = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
    page.find_element("id", "export").click()
    file = tmp_path / "worklist-answers.csv"
    end = time.monotonic() + 10
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.05)
    with file.open(newline="", encoding="utf-8") as opened:
        answers = list(csv.DictReader(opened))
    rows = rows_of(written)
    assert [answer["image"] for answer in answers] == [row["source"] for row in rows]
    assert [a["state"] for a in answers][:5] == ["agree", "disagree", "unsure", "seen", "new"]
    assert [float(a["score"]) for a in answers if a["score"]] == [
        row["score"] for row in rows if row["score"] is not None
    ]


def test_images_without_a_score_are_listed_with_their_reasons(page: Any) -> None:
    page.find_element("css selector", "[data-filter=unscored]").click()
    assert sorted(texts(page, "#list .file")) == ["broken.png", "flat.png"]
    assert any("one gray value" in text for text in texts(page, "#list .reason"))
    assert texts(page, "#rarity")[0].startswith("No score: ")
    press(page, "a", "h", "r", "i")  # nothing to answer, nothing to show
    assert texts(page, "#list .mark") == ["", ""]


def test_help_opens_and_closes_by_its_key(page: Any) -> None:
    press(page, "?")
    assert page.execute_script("return document.getElementById('help').open")
    press(page, "?")
    assert not page.execute_script("return document.getElementById('help').open")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_themes_and_a_visible_focus(page: Any, theme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": theme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    colour = "return getComputedStyle(document.body).backgroundColor"
    assert (page.execute_script(colour) == "rgb(255, 255, 255)") == (theme == "light")
    press(page, "\ue004")  # the tabulator
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.execute_script(outline) == "solid"


def test_a_phone_needs_no_sideways_scrolling(page: Any) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
