"""Strict frozen settings, read from TOML with dotted overrides (`--set method.slots=100`)."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo

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
    """Base of every setting: frozen; an unknown key is an error that names the nearest one; a table
    that names some keys of a default keeps the rest of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _complete_tables(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        # Before pydantic's own check, whose message would name no nearest key.
        for key in values:
            if key not in cls.model_fields:
                raise ValueError(_unknown(str(key), cls.model_fields))
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
        # One mistake at a time: later ones often follow from the first.
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{source}: {place + ': ' if place else ''}{reason}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    if not path.is_file():
        raise ConfigError(f"There is no recipe {path}.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None


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
