"""Strict frozen settings, read from TOML with dotted overrides (`--set method.slots=100`)."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from squid.errors import ConfigError

T = TypeVar("T", bound="Config")

# Choices that several files, and the command line, offer alike.
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bf16"]
Backend = Literal["auto", "torch", "onnx"]
"""What computes scores (`inference/`)."""
Damaged = Literal["refuse", "accept"]
"""What to do with a file whose checksum, texts or codes are broken."""
EvaluatedSplit = Literal["test", "validation"]
"""The images of an evaluation: choices between settings are made on validation images."""
ThresholdKind = Literal["healthy", "best_accuracy"]
"""How a threshold is set: on held-out healthy images, or for the best accuracy on the evaluated
set, as in the paper."""
Selection = Literal["final", "best_epoch", "snapshot_mean"]
"""Which weights give the scores: those at the end of training, those of the epoch that labelled
validation images choose (the paper), or the mean over all snapshots."""


class Config(BaseModel):
    """Base of every setting and record: frozen; an unknown key is an error that names the nearest
    one; a table that names some keys of a default keeps the rest of it; every number is finite."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _complete_tables(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        # Before pydantic's own check, whose message would name no nearest key.
        for key, value in values.items():
            if key not in cls.model_fields:
                raise ValueError(_unknown(str(key), cls.model_fields))
            # As TOML has it; Python would take any number, and write none so long.
            if isinstance(value, int) and value.bit_length() > 63:
                raise ValueError(f"{key} has more than 64 bits; choose a smaller number.")
            if isinstance(value, str) and "\0" in value:  # no name of a file can have it
                raise ValueError(f"{key} holds a null character; remove it.")
        return {key: _over_default(cls.model_fields[key], value) for key, value in values.items()}


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or all of them when none is near."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(sorted(known))}."


def parse(cls: type[T], values: Mapping[str, Any], source: str) -> T:
    """`values` as a `cls`; a mistake raises one sentence that names `source` and the setting."""
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {first_mistake(error)}") from None


def first_mistake(error: ValidationError) -> str:
    """The place and what is wrong there. One mistake at a time: later ones often follow from the
    first."""
    first = error.errors()[0]
    # Without the names that pydantic has for the types of a choice.
    place = ".".join(str(part) for part in first["loc"] if "[" not in str(part))
    return f"{place + ': ' if place else ''}{_reason(first)}"


MISTAKES = {
    "missing": "a value is needed.",
    "int": "{value} is no whole number.",
    "float": "{value} is no number.",
    "finite": "{value} is no number.",
    "bool": "{value} is neither true nor false.",
    "string": "{value} is no text.",
    "literal": "{value} is not known; choose {expected}.",
    "tuple": "{value} is no list.",
    "list": "{value} is no list.",
    "dict": "{value} is no table.",
    "mapping": "{value} is no table.",
    "model": "{value} is no table.",
    "json": "it is no JSON.",
    "too_short": "the list is too short; give at least {min_length}.",
    "too_long": "the list is too long; give at most {max_length}.",
    "greater_than_equal": "{value} is too small; choose at least {ge}.",
    "greater_than": "{value} is too small; choose more than {gt}.",
    "less_than_equal": "{value} is too large; choose at most {le}.",
    "less_than": "{value} is too large; choose less than {lt}.",
}
"""What is wrong with a value, by the name that pydantic has for it, or the name's beginning."""


def _reason(error: ErrorDetails) -> str:
    """The mistake in our words."""
    kind = error["type"]
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")
    try:
        value = repr(error["input"])
    except ValueError:  # Python writes no number of thousands of digits
        value = "a huge number"
    value = value if len(value) <= 40 else f"{value[:40]}..."
    text = MISTAKES.get(kind) or MISTAKES.get(kind.partition("_")[0], "{value} does not fit.")
    return text.format(value=value, **error.get("ctx", {}))


MAX_BYTES = 2**20
MAX_DOTS = 100


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    if not path.is_file():
        raise ConfigError(f"There is no recipe {path}.")
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    # Reading takes the square of the length of a dotted key.
    if len(data) > MAX_BYTES or any(line.count(b".") > MAX_DOTS for line in data.splitlines()):
        raise ConfigError(
            f"{path} is no recipe: it has more than {MAX_BYTES // 2**20} MiB, or more than "
            f"{MAX_DOTS} dots in a line."
        )
    try:
        return tomllib.loads(data.decode())
    except ValueError as error:  # of TOML, of UTF-8, or a number of thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid TOML: it is nested too deeply.") from None


def override(values: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """A copy of `values` in which each `a.b=c` of `settings` is set; `c` is TOML or plain text."""
    result = _copy(values)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise ConfigError(f"'{setting}' is not an override; write it as section.key=value.")
        # Missing sections are made on the way down.
        *parents, last = path.strip().split(".")
        table = result
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise ConfigError(f"'{path}' cannot be set: '{parent}' is a value, not a section.")
        table[last] = _value(text.strip())
    return result


def _over_default(field: FieldInfo, value: Any) -> Any:
    """A table over the default of its field, so that keys it does not name keep their values."""
    if isinstance(field.default, Config) and isinstance(value, Mapping):
        return {**dict(field.default), **value}
    return value


def _value(text: str) -> Any:
    """TOML where it is some (`3`, `true`, `[1, 2]`), and plain text otherwise (`bf16`)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(v) if isinstance(v, Mapping) else v for key, v in values.items()}


def _unknown(key: str, fields: Iterable[str]) -> str:
    return f"unknown key '{key}'; {nearest(key, fields)}"
