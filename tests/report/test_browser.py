"""The report in a real browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver, program = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or program is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture
def page(browser: Any, trained: Path) -> Any:
    browser.get((trained / "report.html").as_uri())
    return browser


def test_loads_without_an_error(page: Any) -> None:
    assert page.get_log("browser") == []
    assert "SQUID report" in page.title
    assert page.execute_script("return document.scripts.length") == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_images_load_in_both_themes(page: Any, theme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": theme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    page.refresh()
    widths = page.execute_async_script(
        "const done = arguments[0], images = [...document.images];"
        "Promise.all(images.map(i => i.decode())).then("
        "() => done(images.map(i => i.naturalWidth)), error => done([0, String(error)]));"
    )
    assert len(widths) >= 7
    assert all(width > 0 for width in widths), widths
    dark = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(255, 255, 255)") == (theme == "light")


def test_tables_are_there(page: Any) -> None:
    rows = page.execute_script(
        "return [...document.querySelectorAll('table')].map(t => t.rows.length)"
    )
    assert len(rows) >= 6
    assert all(count >= 2 for count in rows)


def test_a_phone_needs_no_sideways_scrolling(page: Any) -> None:
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    page.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.execute_script("return innerWidth") == PHONE["width"]
    assert page.execute_script("return document.documentElement.scrollWidth") <= PHONE["width"]
