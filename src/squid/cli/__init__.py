"""The verbs: parse, call one function, print.

What a verb calls is imported when it is: torch takes seconds, for which neither `--help` nor a
mistyped option should wait.
"""

import signal
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer

from squid.cli import data
from squid.cli.benchmarking import benchmark
from squid.cli.calibrating import calibrate
from squid.cli.comparing import compare
from squid.cli.doctor import doctor
from squid.cli.options import INTERRUPTED, Verb, Verbs
from squid.cli.printing import console, errors, escaped
from squid.cli.scoring import score
from squid.cli.training import convert, train
from squid.cli.using import evaluate, explain, report
from squid.cli.watching import watch
from squid.errors import SquidError
from squid.version import __version__


class _Interruptible(Verbs):
    """Ctrl-C and SIGTERM end a verb with a sentence; what it was writing is removed or kept whole.
    Verbs that can go on where they were say so themselves."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            errors.print("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    name="squid",
    cls=_Interruptible,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Find anomalies in radiographs after seeing healthy images only. "
    "Research use only; not a medical device.",
)
USING = (evaluate, compare, score, explain, report)
for verb in (train, *USING, convert, calibrate, benchmark, watch, doctor):
    app.command(cls=Verb)(verb)
app.add_typer(data.app, name="data")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        console.print(__version__, highlight=False)
        raise typer.Exit


def main() -> None:
    """What a user, a disk or a file can cause is one sentence and exit code 2, no traceback."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    # SIGTERM (docker stop, a cluster's time limit) is Ctrl-C for every verb.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except SquidError as error:
        _refuse(str(error))
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        _refuse(f"{file}{error.strerror or error}.")
    except MemoryError:
        _refuse("There is not enough memory; use a smaller batch or fewer jobs at a time.")
    finally:
        signal.signal(signal.SIGTERM, before)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any) -> None:
    """One line for people, without the place in our code."""
    errors.print(f"[yellow]note:[/] {escaped(str(message))}", highlight=False, soft_wrap=True)


def _refuse(reason: str) -> NoReturn:
    errors.print(f"[red]squid:[/] {escaped(reason)}", highlight=False, soft_wrap=True)
    sys.exit(2)
