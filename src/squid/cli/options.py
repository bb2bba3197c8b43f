"""Arguments and options that several verbs have, and what a verb is."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperOption

from squid.config import Device

Format = Literal["table", "csv", "json"]
HeatmapKind = Literal["method", "gradcam", "residual", "memory"]
HeatmapValues = Literal["npy", "tiff"]

SKIPPED = 3
"""Exit code where files could not be read and the rest was done."""

RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder left by `squid train`.")
]
ImagePaths = Annotated[
    list[Path], typer.Argument(metavar="IMAGE", help="Image files, or folders of them.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a recipe key, e.g. method.slots=100."
    ),
]
DeviceOption = Annotated[Device, typer.Option(help="Where to compute.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="How to print the result.")]
Calibrated = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A calibration made by `squid calibrate`.",
        show_default="the run's own",
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a run that is already there.")
]


class Verb(TyperCommand):
    """A command whose help shows no type for a flag, which takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        for param in params:
            if isinstance(param, TyperOption) and param.is_flag:
                param.metavar = ""
        return params
