"""Patients by a regular expression of the recipe, which has a limited time."""

from collections.abc import Iterable
from time import monotonic

import regex

from squid.errors import DataError

MAX_LENGTH = 500
SECONDS = 2.0
"""Processor time for all names together; a hundred thousand take less than a second."""


def compile_patient(expression: str) -> "regex.Pattern[str]":
    """The compiled expression; a ValueError says what is wrong with it."""
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"it has more than {MAX_LENGTH} letters; write a shorter expression.")
    try:
        pattern: regex.Pattern[str] = regex.compile(expression)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"it is no regular expression ({error}); correct it.") from None
    if not pattern.groups:
        raise ValueError("it has no group; put what names the patient in parentheses.")
    return pattern


def match_patients(names: Iterable[str], expression: str) -> tuple[str, ...]:
    """The first group of the expression in each name.

    `re` would take hours for an expression such as (a+)+$ on a name of forty letters.
    """
    pattern, end = compile_patient(expression), monotonic() + SECONDS
    patients = []
    for name in names:
        try:
            found = pattern.search(name, timeout=max(end - monotonic(), 1e-3))
        except TimeoutError:
            raise DataError(
                f"patient = '{expression}' takes too long on '{name}'; simplify it."
            ) from None
        patient = found.group(1) if found else None
        if patient is None:
            raise DataError(f"patient = '{expression}' finds no group in '{name}'; correct it.")
        patients.append(patient)
    return tuple(patients)
