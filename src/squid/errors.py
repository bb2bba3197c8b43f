"""Everything a user can get wrong, or that can go wrong under a user.

SquidError
├── ConfigError      a recipe or an override says something impossible
├── DataError        a file, a folder or a split is not what it should be
├── RunError         a run folder is missing, incomplete or in the way
├── DivergedError    training produced a loss that is not a number
├── NotFiniteError   a score is not a number
├── BusyError        another process writes there
└── MissingExtra     an optional dependency is needed and absent

Each message is one sentence that names the offending value and the remedy; the CLI prints it and
exits with 2.
"""


class SquidError(Exception):
    """Base of every error that is not a defect of the program."""


class ConfigError(SquidError):
    """A recipe or an override says something impossible."""


class DataError(SquidError):
    """A file, a folder or a split is not what it should be."""


class RunError(SquidError):
    """A run folder is missing, incomplete or in the way."""


class DivergedError(SquidError):
    """Training produced a loss that is not a number."""


class NotFiniteError(SquidError):
    """A score is not a number, so it is no answer."""


class BusyError(SquidError):
    """Another process writes there."""


class MissingExtra(SquidError):
    """An optional dependency is needed and absent."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed; install it with: "
            f"pip install 'squid-radiography[{extra}]'."
        )
