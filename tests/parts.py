"""Programs that are not ours, which tests compare results with or send them to."""

import os
import shutil

import pytest

REQUIRED = "SQUID_REQUIRE_PARTS"
"""Set where all of them must be there: a test that needs one then fails without it."""


def need(*programs: str, package: str, present: bool = True) -> None:
    """Skips the test that asks where a program is not installed, or something else is not."""
    absent = [program for program in programs if shutil.which(program) is None]
    if present and not absent:
        return
    reason = f"{', '.join(absent) or programs[0]} is not installed (apt-get install {package})"
    if os.environ.get(REQUIRED):
        pytest.fail(f"{reason}, and {REQUIRED} is set")
    pytest.skip(reason)
