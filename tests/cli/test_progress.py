"""The bar of a training: on standard error, and whole in a narrow terminal."""

import io

from rich.console import Console

from squid.cli.progress import TrainingProgress
from squid.train import Epoch

LOSSES = {
    "discriminator.discriminator": 0.00693,
    "generator.student": 0.9,
    "generator.teacher": 0.1,
}


def test_nothing_is_cut_in_a_narrow_terminal():
    for width in (80, 120):
        written = io.StringIO()
        with TrainingProgress(Console(file=written, width=width, force_terminal=True)) as progress:
            progress.epoch(
                Epoch(
                    stage="score distillation",
                    epoch=12,
                    epochs=300,
                    step=40,
                    steps=78,
                    losses=LOSSES,
                    rates={},
                    seconds=1.0,
                    images_per_second=238.0,
                )
            )
        text = written.getvalue().replace("\xa0", " ")
        assert "…" not in text
        for whole in ("score distillation 12/300", "238 images/s", "discriminator 0.00693"):
            assert whole in text
        assert "generator 1" in text


def test_a_bar_is_no_part_of_the_output(squid, tiny_recipe, tmp_path):
    words = ("--out", tmp_path / "run", "--device", "cpu", "--set", "method.epochs=1")
    code, out, err = squid("train", tiny_recipe, *words)
    assert code == 0
    assert "images/s" not in out
    assert "images/s" in err
