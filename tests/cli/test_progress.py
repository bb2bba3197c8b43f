"""The bar of a training: on standard error, and whole in a narrow terminal."""

import io
from types import SimpleNamespace

from rich.console import Console

from squid.cli.progress import TrainingProgress
from squid.train import Epoch

LOSSES = {
    "discriminator.discriminator": 0.00693,
    "generator.student": 0.9,
    "generator.teacher": 0.1,
}


def epoch(number: int) -> Epoch:
    return Epoch(
        stage="score distillation",
        epoch=number,
        epochs=300,
        step=40,
        steps=78,
        losses=LOSSES,
        rates={},
        seconds=1.0,
        images_per_second=238.0,
    )


def test_nothing_is_cut_in_a_narrow_terminal():
    for width in (80, 120):
        written = io.StringIO()
        with TrainingProgress(Console(file=written, width=width, force_terminal=True)) as progress:
            progress.epoch(epoch(12))
        text = written.getvalue().replace("\xa0", " ")
        assert "…" not in text
        for whole in ("score distillation 12/300", "238 images/s", "discriminator 0.00693"):
            assert whole in text
        assert "generator 1" in text


def test_a_log_has_a_line_for_each_stage_and_each_minute(monkeypatch):
    written, seconds = io.StringIO(), iter([0.0, 10.0, 70.0, 70.0, 80.0, 90.0, 90.0])
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("squid.cli.progress.time", clock)
    with TrainingProgress(Console(file=written, width=80)) as progress:
        for number in (1, 2, 3, 300):  # after 10, 70, 80 and 90 seconds
            progress.epoch(epoch(number))
    lines = written.getvalue().replace("\xa0", " ").splitlines()
    assert [line.split()[2] for line in lines] == ["2/300", "300/300"]
    assert "238 images/s  discriminator 0.00693  generator 1" in lines[0]


def test_nothing_is_printed_before_the_first_step():
    for terminal in (True, False):
        written = io.StringIO()
        with TrainingProgress(Console(file=written, width=80, force_terminal=terminal)):
            pass
        assert written.getvalue() == ""
