"""HTML that is safe by construction: every string is escaped unless it is `Html` already."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template

from squid.report.style import DPI, Chart

VOID = {"img", "source", "br"}
RESEARCH_ONLY = "For research use only; not a medical device."


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element; `class_` is the attribute `class`, and attributes that are None are left out."""
    # `class_` because class is a keyword of Python; HTML's hyphens are underscores here.
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(children)}</{name}>")


def join(parts: Iterable[object]) -> Html:
    return Html("".join(p if isinstance(p, Html) else escape(str(p)) for p in parts))


def section(title: str, *children: object) -> Html:
    return tag("section", tag("h2", title), *children)


def note(*children: object) -> Html:
    return tag("p", *children, class_="note")


def alarm(text: str) -> Html:
    """A box that nobody overlooks."""
    return tag("p", tag("b", "Do not rely on this page. "), text, class_="alarm", role="alert")


def side_by_side(*children: object) -> Html:
    """Next to each other where the window is wide enough, else one below the other."""
    return tag("div", *(tag("div", child) for child in children), class_="beside")


def table(
    header: Sequence[object], rows: Iterable[Sequence[object]], *, caption: str, words: bool = False
) -> Html:
    """Columns after the first are numbers, unless they hold `words` or there is no digit in them;
    many of them stand closer."""
    rows = list(rows)
    # Columns decide their alignment: numbers at the right, words at the left.
    kinds = [_kind(column) for column in zip(*rows, strict=True)] or [None] * len(header)
    titles = zip(header, kinds, strict=True)
    head = tag("thead", tag("tr", *(tag("th", t, scope="col", class_=kind) for t, kind in titles)))
    body = tag("tbody", *(_row(row, kinds) for row in rows))
    kind = "words" if words else "numbers dense" if len(header) > 6 else "numbers"
    return _scrolling(
        tag("table", tag("caption", tag("span", caption)), head, body, class_=kind), caption
    )


def _kind(column: Sequence[object]) -> str | None:
    """`word` where each cell that is not empty has letters and no digit."""
    filled = [text for cell in column if (text := str(cell))]
    worded = (any(map(str.isalpha, text)) and not any(map(str.isdigit, text)) for text in filled)
    return "word" if filled and all(worded) else None


def _row(cells: Sequence[object], kinds: Sequence[str | None]) -> Html:
    rest = zip(cells[1:], kinds[1:], strict=True)
    return tag(
        "tr",
        tag("th", cells[0], scope="row"),
        *(tag("td", cell, class_=kind) for cell, kind in rest),
    )


def facts(pairs: Mapping[str, object]) -> Html:
    """Names and values; what is None is left out."""
    known = [(name, value) for name, value in pairs.items() if value is not None]
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in known))


def details(summary: str, *children: object) -> Html:
    return tag("details", tag("summary", summary), *children)


def figure(chart: Chart) -> Html:
    """Inlined for both themes; paper is always light."""
    # The browser picks the picture of its theme; printing always takes the light one.
    on_dark = "screen and (prefers-color-scheme: dark)"
    source = tag("source", srcset=inlined(chart.dark), media=on_dark)
    image = tag("img", src=inlined(chart.light), alt=chart.alt, width=_shown_width(chart.light))
    picture = tag("picture", source, image)
    shown = _scrolling(picture, chart.alt) if chart.wide else picture
    return tag("figure", shown, tag("figcaption", chart.caption), id=f"figure-{chart.name}")


def page(title: str, *children: object) -> str:
    """The whole document."""
    template, style = Template(asset("page.html")), asset("page.css")
    return template.substitute(
        title=escape(title),
        policy=_policy(style),
        style=style,
        body=join(children),
        warning=RESEARCH_ONLY,
    )


def _policy(style: str) -> str:
    """What a browser may load: pictures within the page and this very style sheet, nothing else.

    Should a text ever escape its escaping, no script in it would run and nothing would be fetched.
    """
    digest = b64encode(sha256(style.encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )


def _scrolling(content: Html, label: str) -> Html:
    """What is wider than a phone scrolls in its own box; the keyboard can reach it."""
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=label)


def asset(name: str) -> str:
    """A template, style or script that lies next to this file."""
    return files("squid.report").joinpath(name).read_text(encoding="utf-8")


def _shown_width(png: bytes) -> int:
    """100 pixels an inch; the picture holds more for sharp screens."""
    # A PNG file holds its width in bytes 16 to 19.
    return int.from_bytes(png[16:20], "big") * 100 // DPI


def inlined(picture: bytes, kind: str = "png") -> str:
    """A picture as a URL that needs no network."""
    return f"data:image/{kind};base64,{b64encode(picture).decode('ascii')}"
