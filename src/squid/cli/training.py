"""The verbs that make a run folder: `train` and `convert`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from squid.cli.options import INTERRUPTED, DeviceOption, Overwrite, Settings
from squid.cli.printing import console, errors, escaped, print_line, show_splits
from squid.config import Device
from squid.errors import ConfigError

if TYPE_CHECKING:
    from squid.recipe import Recipe


def train(
    recipe: Annotated[
        Path | None,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe file, or a folder of images for the default; none with --resume.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The run folder; default runs/RECIPE.")
    ] = None,
    set_: Settings = None,
    device: DeviceOption = "auto",
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Train so many seeds, one run folder each.")
    ] = 1,
    devices: Annotated[
        int, typer.Option(min=1, metavar="N", help="GPUs (or CPU processes) on each machine.")
    ] = 1,
    nodes: Annotated[int, typer.Option(min=1, metavar="N", help="Machines.")] = 1,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Go on with an interrupted run, to the same weights."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Train a recipe, or the default for radiographs on a folder of images, into a run folder.

    Ctrl-C saves and says how to go on.

    Example: `squid train my-recipe.toml --out runs/mine`
    """
    from squid.cli.progress import TrainingProgress
    from squid.run import Run
    from squid.train import Engine
    from squid.training import train_run, train_seeds

    if (recipe is None) == (resume is None):
        raise ConfigError("Give a recipe to train, or --resume RUN to go on with one.")
    settings = set_ or []
    chosen, folder = _what_to_train(recipe, resume, out, settings, device)
    if resume is None and seeds == 1:
        Run(folder).refuse_begun(overwrite=overwrite)  # before the data is read
    engine = Engine(device, precision=chosen.train.precision, devices=devices, nodes=nodes)
    engine.launch()
    splits = chosen.data.load(chosen.method.size)
    if engine.leads:
        print_line(console, escaped(chosen.title))
        show_splits(console, chosen, splits)
    again = f"squid train --resume {folder}" if seeds == 1 else "the same command"
    with _interruptible(folder, again), TrainingProgress(errors, shown=engine.leads) as progress:
        if seeds > 1:
            folders = train_seeds(
                chosen,
                folder,
                seeds,
                engine=engine,
                monitor=progress,
                splits=splits,
                overwrite=overwrite,
            )
        else:
            train_run(
                chosen,
                folder,
                engine=engine,
                monitor=progress,
                splits=splits,
                resume=resume is not None,
                overwrite=overwrite,
            )
            folders = [folder]
    if engine.leads:
        for made in folders:
            print_line(
                console, f"Trained: [bold]{escaped(made)}[/]   next: squid evaluate {escaped(made)}"
            )


def convert(
    generator: Annotated[Path, typer.Argument(metavar="MODEL.pth", help="The authors' generator.")],
    discriminator: Annotated[
        Path, typer.Argument(metavar="DISCRIMINATOR.pth", help="The authors' discriminator.")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The run folder to make.")],
    overwrite: Overwrite = False,
) -> None:
    """Make a run folder from checkpoints of the authors' code (loaded weights-only).

    Example: `squid convert model.pth discriminator.pth --out runs/authors`
    """
    from squid.convert import convert_run

    convert_run(generator, discriminator, out, overwrite=overwrite)
    shown = escaped(out)
    print_line(
        console,
        f"Converted: [bold]{shown}[/]   next: squid calibrate {shown} HEALTHY_IMAGES --name SITE",
    )


def _what_to_train(
    recipe: Path | None, resume: Path | None, out: Path | None, settings: list[str], device: Device
) -> "tuple[Recipe, Path]":
    from squid.recipe import read_recipe
    from squid.training import default_recipe, open_unfinished

    if resume is not None:
        if settings or out:
            raise ConfigError("--resume goes on as the run began; leave --set and --out out.")
        return open_unfinished(resume).recipe, resume
    assert recipe is not None
    if recipe.is_dir():
        default = default_recipe(recipe, device).with_settings(settings)
        return default, out or Path("runs") / recipe.resolve().name
    return read_recipe(recipe, settings), out or Path("runs") / recipe.stem


@contextmanager
def _interruptible(folder: Path, again: str) -> Iterator[None]:
    """An interrupted training says how to go on, once it has a folder."""
    from squid.train import Interrupted

    try:
        yield
    except KeyboardInterrupt as interrupt:
        if not folder.exists():
            raise
        saved = " and saved" if isinstance(interrupt, Interrupted) else ""
        errors.print(f"Interrupted{saved}. Go on with: {escaped(again)}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
