"""Arguments and options that several verbs have, and what a verb is."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from squid.config import Backend, Device, Precision
from squid.errors import ConfigError

Format = Literal["table", "csv", "json"]
HeatmapKind = Literal["method", "gradcam", "residual", "memory"]
HeatmapValues = Literal["npy", "tiff"]

SKIPPED = 3
"""Exit code where files could not be read and the rest was done."""
INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM."""

RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder left by `squid train`.")
]
ImagePaths = Annotated[
    list[Path], typer.Argument(metavar="IMAGE", help="Image files, or folders of them.")
]


def set_option(help_: str) -> Any:
    """`--set KEY=VALUE`; what it overrides differs between verbs."""
    return typer.Option("--set", metavar="KEY=VALUE", help=help_)


Settings = Annotated[list[str] | None, set_option("Override a recipe key, e.g. method.slots=100.")]
DeviceOption = Annotated[Device, typer.Option(help="Where to compute.")]
BackendOption = Annotated[
    Backend,
    typer.Option(
        help="What computes; auto takes ONNX Runtime on a CPU once the run has a model.onnx."
    ),
]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option(
        help="bf16 is faster where the processor has it, and moves scores a little.",
        show_default="the training's on a GPU, float32 on a CPU",
    ),
]
OutputFormat = Annotated[Format, typer.Option("--format", help="How to print the result.")]
Calibrated = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A calibration made by `squid calibrate`.",
        show_default="the run's own",
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        metavar="RATE",
        help="Flag at this false-positive rate.",
        show_default="the calibration's, else the recipe's",
    ),
]
Threshold = Annotated[float | None, typer.Option(metavar="SCORE", help="Flag from this score on.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Stop at the first file that cannot be read.")
]
Unverified = Annotated[
    bool,
    typer.Option("--unverified", help="Use files of the run that differ from its MANIFEST.sha256."),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a run that is already there.")
]


class _Plain:
    """Help without types: a flag takes no value, and an argument's name says what it is."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if isinstance(param, TyperOption) and param.is_flag:
                param.metavar = ""
            elif isinstance(param, TyperArgument):
                param.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
        return params


class Verb(_Plain, TyperCommand):
    """A command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # An unset variable of a script would else be the working directory: Path("") is Path(".").
        if "" in args:
            raise ConfigError("One of the arguments is empty; name a file, or . for this folder.")
        return super().parse_args(ctx, args)


class Verbs(_Plain, TyperGroup):
    """A group of commands."""
