"""Errors that a user can mend, and the near names that help to mend them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


class ConfigError(Exception):
    """Something in the configuration or the folders is wrong.

    The message is a complete sentence that names the place and says what to do. The command line
    prints it alone, without a stack trace, and ends with exit status 2.
    """


def near(name: str, known: Iterable[str]) -> str:
    """A sentence that offers the names close to `name`, or all of them where none is close."""
    choices = sorted(set(known))
    close = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known are: {', '.join(choices)}." if choices else "None is known."


def unknown(what: str, name: str, known: Iterable[str], place: str) -> ConfigError:
    """The error for a name that is not known; `place` is the configuration key that holds it."""
    return ConfigError(f"{place}: there is no {what} {name!r}. {near(name, known)}")


def refuse_unknown_keys(given: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Raise the error for the first key of `given` that is not among `known`."""
    names = tuple(known)
    for key in given:
        if key not in names:
            raise unknown("key", str(key), names, place)
