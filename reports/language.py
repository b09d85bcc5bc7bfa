"""The report's languages: every string, and numbers and units the way a reader expects them.

Strings live in `locale/<code>.yaml` and may hold fields with the formats of `_FORMATS`, so that a
translator places and words a number without touching code: `{speedup:times}`, `{n:count}`,
`{n:plural:block:blocks}`. A value that is missing or not a number reads as the locale's `none`.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from reports.source import Interval, ReportError, as_interval, as_number

LANGUAGES = ("en", "ja")
_FOLDER = Path(__file__).parent / "locale"


@cache
def load_strings(code: str) -> dict[str, str]:
    """Flat table `section.key` -> text of one language. Raises ReportError for an unknown one."""
    if code not in LANGUAGES:
        raise ReportError(
            f"The report has no language {code!r}. Choose one of: {', '.join(LANGUAGES)}."
        )
    tree = yaml.safe_load((_FOLDER / f"{code}.yaml").read_text(encoding="utf-8"))
    flat: dict[str, str] = {}

    def walk(node: Mapping[str, Any], prefix: str) -> None:
        for key, value in node.items():
            if isinstance(value, Mapping):
                walk(value, f"{prefix}{key}.")
            else:
                flat[f"{prefix}{key}"] = str(value)

    walk(tree, "")
    return flat


@dataclass(frozen=True)
class Message:
    """A sentence ready to print, with the language it is written in."""

    text: str
    lang: str


class Language(string.Formatter):
    """One language: look up a string with `t("section.key", name=value)`."""

    def __init__(self, code: str, currency: str = "USD") -> None:
        self.code = code
        self.currency = currency
        self.strings = load_strings(code)

    def __call__(self, key: str, **params: Any) -> str:
        """Text of `key` with its fields filled in. A missing key is a programming error."""
        return self.vformat(self.strings[key], (), params)

    def has(self, key: str) -> bool:
        return key in self.strings

    def name(self, section: str, value: Any) -> str:
        """Word for one of a closed set of values; an unknown value is shown as it is."""
        key = f"{section}.{value}"
        return self.strings[key] if key in self.strings else str(value)

    def message(self, item: Any) -> Message:
        """Words a `{key, params, text}` of the analysis.

        English is the analysis' own `text`; so is what another language has no sentence for.
        """
        if not isinstance(item, Mapping):
            return Message(str(item), "en")
        key = f"message.{item.get('key')}"
        if key in self.strings:
            params = {str(k): v for k, v in (item.get("params") or {}).items()}
            try:
                return Message(self(key, **params), self.code)
            except (KeyError, IndexError, ValueError):
                pass  # the analysis gave other parameters than the sentence needs
        text = item.get("text") or item.get("message") or item.get("key")
        return Message(str(text), "en")

    # -- formats -------------------------------------------------------------------------------

    def format_field(self, value: Any, format_spec: str) -> str:
        name, _, argument = format_spec.partition(":")
        if not name:
            return self.plain(value)
        if name == "plural":
            one, _, many = argument.partition(":")
            return one if value == 1 else many
        if name == "name":
            return self.name(argument, value)
        if name not in _FORMATS:
            raise ValueError(f"The locale {self.code} uses an unknown format {name!r}.")
        return _FORMATS[name](self, value)

    def plain(self, value: Any) -> str:
        if value is None:
            return self.strings["format.none"]
        if isinstance(value, bool):
            return self.strings["format.yes" if value else "format.no"]
        if isinstance(value, float):
            return self.significant(value)
        if isinstance(value, Sequence) and not isinstance(value, str):
            return self.strings["format.list_separator"].join(self.plain(v) for v in value)
        return str(value)

    def fixed(self, value: Any, digits: int) -> str:
        """A number with a set count of decimals and grouped thousands, minus as U+2212."""
        number = as_number(value)
        if number is None:
            return self.strings["format.none"]
        if math.isinf(number):
            return self.strings["format.infinite" if number > 0 else "format.minus_infinite"]
        text = f"{number:,.{digits}f}"
        if float(text.replace(",", "")) == 0:
            text = text.lstrip("-")
        return text.replace("-", "−")

    def significant(self, value: Any, digits: int = 3) -> str:
        """A number rounded to a count of significant digits, without an exponent."""
        number = as_number(value)
        if number is None or math.isinf(number) or number == 0:
            return self.fixed(value, 0)
        return self.fixed(number, max(0, digits - 1 - math.floor(math.log10(abs(number)))))

    def value(self, form: str, value: Any) -> str:
        """`value` in one of the formats that the locale files use."""
        return _FORMATS[form](self, value)

    def unit(self, key: str, text: str) -> str:
        if text == self.strings["format.none"]:
            return text
        return self(f"format.{key}", value=text)

    def amount(self, value: Any) -> str:
        """An amount without its currency: whole from 100 on; three significant digits below 0.1,
        because the cost of a token is small."""
        number = as_number(value)
        if number is None or math.isinf(number) or abs(number) >= 100:
            return self.fixed(number, 0)
        return self.significant(number) if 0 < abs(number) < 0.1 else self.fixed(number, 2)

    def money(self, value: Any, form: Callable[[Any], str] | None = None) -> str:
        """An amount in the currency of the configuration."""
        number = as_number(value)
        if number is None or math.isinf(number):
            return self.fixed(number, 0)
        amount = (form or self.amount)(abs(number))
        key = f"currency.{self.currency}"
        pattern = self.strings.get(key, self.strings["currency.other"])
        text = self.vformat(pattern, (), {"amount": amount, "code": self.currency})
        return f"−{text}" if number < 0 else text

    def exact(self, value: Any) -> str:
        """A number of the configuration with the digits that it was given."""
        text = self.fixed(value, 6)
        return text.rstrip("0").rstrip(".") if "." in text else text

    def months(self, value: Any) -> str:
        number = as_number(value)
        if number is not None and math.isinf(number):
            return self.strings["format.never"]
        return self.unit("months", self.fixed(number, 1))

    def date(self, value: Any) -> str:
        """An ISO 8601 time in UTC in the reader's order; other text as it is."""
        try:
            moment = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        except ValueError:
            return self.plain(value)
        if moment.tzinfo:
            moment = moment.astimezone(UTC)
        return self(
            "format.date", year=moment.year, month=moment.month, day=moment.day,
            month_name=self(f"month.{moment.month}"), clock=moment.strftime("%H:%M"),
        )  # fmt: skip

    def interval(self, value: Any, form: Callable[[Any], str] | None = None) -> str:
        """`mean (low to high)`; the mean alone where there is no interval."""
        form = form or self.significant
        measured = as_interval(value)
        if measured is None:
            return self.strings["format.none"]
        if not measured.bounded:
            return form(measured.mean)
        return self("format.interval", mean=form(measured.mean), range=self.range(measured, form))

    def short_range(self, value: Any, form: Callable[[Any], str]) -> str:
        """`low–high` for narrow table cells; empty without an interval."""
        measured = as_interval(value)
        if measured is None or not measured.bounded:
            return ""
        return self("format.short_range", low=form(measured.ci_low), high=form(measured.ci_high))

    def range(self, value: Any, form: Callable[[Any], str] | None = None) -> str:
        """`low to high`, or the locale's `none`."""
        form = form or self.significant
        measured = value if isinstance(value, Interval) else as_interval(value)
        if measured is None or not measured.bounded:
            return self.strings["format.none"]
        return self("format.range", low=form(measured.ci_low), high=form(measured.ci_high))


_FORMATS: dict[str, Callable[[Language, Any], str]] = {
    "count": lambda t, v: t.fixed(v, 0),
    "times": lambda t, v: t.unit("times", t.fixed(v, 2)),
    "fixed2": lambda t, v: t.fixed(v, 2),
    "ratio": lambda t, v: t.fixed(v, 3),
    "hundredths": lambda t, v: t.fixed(_scaled(v, 100), 1),
    "percent": lambda t, v: t.unit("percent", t.fixed(_scaled(v, 100), 1)),
    "percent0": lambda t, v: t.unit("percent", t.fixed(_scaled(v, 100), 0)),
    "percent2": lambda t, v: t.unit("percent", t.fixed(_scaled(v, 100), 2)),
    "percent3": lambda t, v: t.unit("percent", t.fixed(_scaled(v, 100), 3)),
    "rate": lambda t, v: t.unit("rate", t.significant(v)),
    "ms": lambda t, v: t.unit("ms", t.significant(v)),
    "seconds": lambda t, v: t.unit("seconds", t.significant(v)),
    "mega": lambda t, v: t.unit("mega", t.significant(_scaled(v, 1e-6))),
    "money": lambda t, v: t.money(v),
    "amount": lambda t, v: t.amount(v),
    "months": lambda t, v: t.months(v),
    "date": lambda t, v: t.date(v),
    "number": lambda t, v: t.significant(v),
    "exact": lambda t, v: t.exact(v),
    "exact_months": lambda t, v: t.unit("months", t.exact(v)),
    "exact_percent": lambda t, v: t.unit("percent", t.exact(_scaled(v, 100))),
    "exact_money": lambda t, v: t.money(v, t.exact),
    "exact_ms": lambda t, v: t.unit("ms", t.exact(v)),
    "times_ci": lambda t, v: t.interval(v, lambda x: _FORMATS["times"](t, x)),
    "times_range": lambda t, v: t.range(v, lambda x: _FORMATS["times"](t, x)),
    "ratio_ci": lambda t, v: t.interval(v, lambda x: _FORMATS["ratio"](t, x)),
    "percent_ci": lambda t, v: t.interval(v, lambda x: _FORMATS["percent"](t, x)),
    "percent_range": lambda t, v: t.range(v, lambda x: _FORMATS["percent"](t, x)),
    "percent2_ci": lambda t, v: t.interval(v, lambda x: _FORMATS["percent2"](t, x)),
    "money_ci": lambda t, v: t.interval(v, t.money),
    "months_ci": lambda t, v: t.interval(v, t.months),
    "number4": lambda t, v: t.significant(v, 4),
    "number_ci": lambda t, v: t.interval(v),
    "list": lambda t, v: t.plain(v),
}


def _scaled(value: Any, factor: float) -> float | None:
    number = as_number(value)
    return None if number is None else number * factor
