"""Both languages are complete, and numbers read as their readers expect."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from harness.findings import TEXTS
from reports.language import LANGUAGES, Language, load_strings
from reports.source import Interval, ReportError

REPORTS = Path(__file__).parents[2] / "reports"
FINDINGS = "message."


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def own_strings(code: str) -> dict[str, str]:
    return {k: v for k, v in load_strings(code).items() if not k.startswith(FINDINGS)}


def test_no_language_lacks_a_string_or_a_field_of_one() -> None:
    tables = {code: own_strings(code) for code in LANGUAGES}
    english = tables.pop("en")
    for code, table in tables.items():
        assert set(table) == set(english), code
        for key, text in table.items():
            if key.startswith(("format.date", "currency.")):
                continue
            assert fields(text) <= fields(english[key]), f"{code} {key}"


@pytest.mark.parametrize("code", [code for code in LANGUAGES if code != "en"])
def test_every_finding_of_the_analysis_is_translated_with_its_figures(code: str) -> None:
    strings = load_strings(code)
    assert [key for key in TEXTS if FINDINGS + key not in strings] == []
    for key, english in TEXTS.items():
        translated = strings[FINDINGS + key]
        assert fields(translated) == fields(english), key
        params = {name: 1 if re.search(rf"{{{name}:", english) else "x" for name in fields(english)}
        message = Language(code).message({"key": key, "params": params, "text": english})
        assert message.lang == code, key


def test_every_string_that_the_code_names_exists() -> None:
    named: set[str] = set()
    for path in [*REPORTS.rglob("*.py"), *REPORTS.rglob("*.j2")]:
        literal = r"(?<![\w\"`])t\([\"']([a-z_0-9]+(?:\.[a-z_0-9]+)*)[\"'][,)]"
        named |= set(re.findall(literal, path.read_text("utf-8")))
    assert len(named) > 60
    assert named <= set(load_strings("en"))


def test_templates_hold_no_words_of_their_own() -> None:
    for path in (REPORTS / "templates").glob("*.j2"):
        text = re.sub(r"{[{%#].*?[}%#]}", "", path.read_text("utf-8"), flags=re.DOTALL)
        text = re.sub(r"<[^>]*>", "", text)
        assert re.findall(r"[^\W\d_]{2,}", text) == [], path.name


def test_numbers_and_units() -> None:
    en, ja = Language("en"), Language("ja", "JPY")
    assert en.value("times", 1.625) == "1.62×"
    assert ja.value("times", 1.625) == "1.62倍"
    assert en.value("percent", -0.0123) == "−1.2%"
    assert en.value("count", 1234567) == "1,234,567"
    assert en.value("number", 0.00123456) == "0.00123"
    assert en.fixed(-0.0001, 2) == "0.00"
    assert en.money(-1234.5) == "−$1,234"
    assert en.money(0.0123) == "$0.0123"
    assert ja.money(1234567) == "1,234,567円"
    assert Language("en", "CHF").money(5) == "5.00 CHF"
    assert en.months(float("inf")) == "never"
    assert en.value("count", float("nan")) == "–"
    assert en.date("2026-11-29T23:30:00+09:00") == "29 November 2026, 14:30 UTC"
    assert ja.date("2026-11-29T14:30:00Z") == "2026年11月29日 14:30（UTC）"
    measured = Interval(1.5, 1.25, 1.75)
    assert en.value("times_ci", measured) == "1.50× (1.25× to 1.75×)"
    assert ja.value("times_ci", measured) == "1.50倍（1.25倍～1.75倍）"
    assert en.value("times_ci", Interval(1.5, None, None)) == "1.50×"


def test_unknown_language_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ReportError, match="en, ja"):
        Language("xx")
