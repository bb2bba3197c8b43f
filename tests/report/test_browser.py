"""The report in a real browser."""

from pathlib import Path
from typing import Any

import pytest

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}

pytestmark = pytest.mark.browser


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
