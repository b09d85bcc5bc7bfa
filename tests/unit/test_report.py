"""The report as a reader gets it: what it says, in both languages, whatever the summary holds."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reports.build import build, main
from reports.language import LANGUAGES
from reports.source import ReportError
from tests.unit import report_samples as samples
from tests.unit.report_page import Page

MAX_FIGURE_BYTES = 45_000


def page_of(folder: Path, lang: str = "en") -> Page:
    return Page(build(folder, lang).read_text("utf-8"))


def page_with(tmp_path: Path, content: dict[str, Any], lang: str = "en", **facts: Any) -> Page:
    return page_of(samples.write(tmp_path / "results", content, **facts), lang)


@pytest.fixture(scope="module", params=LANGUAGES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(samples.write(tmp_path_factory.mktemp("results")), request.param)


def test_refers_to_nothing_outside(page: Page) -> None:
    for element in page.elements:
        assert element.tag not in {"script", "link", "iframe", "object", "embed", "img"}
        for name, value in element.attributes.items():
            assert not name.startswith("on"), f"{element.tag} has a handler {name}"
            if name in {"src", "href", "xlink:href", "srcset", "action"}:
                assert value.startswith("#"), f"{element.tag} {name}={value}"
            for target in re.findall(r"url\((.*?)\)", value):
                assert target.startswith("#")
    for style in page.all("style"):
        assert "@import" not in style.text
        assert "url(" not in style.text
        assert "http" not in style.text


def test_ids_are_unique_and_every_reference_has_its_target(page: Page) -> None:
    ids = Counter(e.attributes["id"] for e in page.elements if "id" in e.attributes)
    assert [name for name, count in ids.items() if count > 1] == []
    for element in page.elements:
        for name, value in element.attributes.items():
            targets = re.findall(r"url\(#(.*?)\)", value)
            if name == "href":
                targets.append(value.removeprefix("#"))
            if name == "aria-labelledby":
                targets += value.split()
            assert set(targets) <= set(ids), f"{element.tag} {name}={value}"


def test_figures_are_small_and_speak_to_a_screen_reader(tmp_path: Path) -> None:
    html = build(samples.write(tmp_path / "r")).read_text("utf-8")
    figures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(figures) >= 8
    for figure in figures:
        assert len(figure.encode()) < MAX_FIGURE_BYTES
        assert 'role="img"' in figure
        assert re.search(r"<title id=[^>]+>[^<]{10,}</title><desc id=[^>]+>[^<]{20,}", figure)
        assert "<text" in figure, "text must stay text"


def test_says_the_verdict_in_words_before_anything_else(tmp_path: Path) -> None:
    content = samples.summary()
    words = {
        "en": {"adopt": "Adopt", "pilot": "Pilot", "reject": "Reject", "undecided": "Undecided"},
        "ja": {"adopt": "採用", "pilot": "試験導入", "reject": "不採用", "undecided": "判定保留"},
    }
    for lang, by_decision in words.items():
        for decision, word in by_decision.items():
            content["verdict"]["decision"] = decision
            page = page_with(tmp_path, content, lang)
            assert page.one("html").attributes["lang"] == lang
            banner = page.all("h2")[0]
            assert banner.attributes["id"] == "verdict"
            assert banner.text.startswith(word)


def test_page_one_gives_method_effect_quality_certainty_and_money(tmp_path: Path) -> None:
    content = samples.summary()
    page = page_with(tmp_path, content)
    facts = page.one("dl", "facts").text
    verdict = content["verdict"]
    best = next(m for m in content["methods"] if m["method_id"] == verdict["method_id"])
    low, high = (verdict["speedup"][end] for end in ("ci_low", "ci_high"))
    assert best["name"] in facts
    assert f"{low:.2f}× to {high:.2f}×" in facts
    assert f"${verdict['cost']['net_value']['mean']:,.0f}" in facts
    assert f"{best['quality']['agreement_rate']['mean']:.1%} same token" in facts
    assert "8 blocks" in facts
    assert facts.count("projected from assumed demand and prices") == 3
    assert "quantize and speculate" in page.all("h2")[0].text


def test_every_method_of_every_group_stands_in_the_tables(page: Page) -> None:
    rows = [e.text for e in page.all("th") if e.attributes.get("scope") == "row"]
    methods = samples.summary()["methods"]
    for name, count in Counter(m["name"] for m in methods).items():
        # Once in the table of speed and once in that of drafting, in each group.
        assert sum(row.startswith(name) for row in rows) >= 2 * count, name


def test_three_way_table_shows_the_estimate_that_did_not_choose(tmp_path: Path) -> None:
    content = samples.summary()
    arm = next(a for a in content["arms"] if a["arm"] == "combined")
    arm["speedup"] = samples.interval(3.21)
    assert "3.21×" in page_with(tmp_path, content).all("table")[0].text


def test_notes_say_what_limits_the_figures(tmp_path: Path) -> None:
    content = samples.summary()
    assert "by construction" in page_with(tmp_path, content).one("section", "notes").text
    clean = page_with(tmp_path, content, model={"name": "demo"}).one("section", "notes").text
    assert "by construction" not in clean
    for m in content["methods"]:
        m |= {"synthetic": True, "acceptance": "replay", "lossless": False, "interleaved": False}
    content["failures"] = [
        {"group": "g", "method_id": "w4a4", "block": "001",
         "error": {"type": "OutOfMemory", "message": "no room", "stderr_tail": "last words"}}
    ]  # fmt: skip
    page = page_with(tmp_path, content, fake=True)
    notes = page.one("section", "notes").text
    for phrase in ("Synthetic weights", "Replayed acceptance", "Invented data", "1 cell failed",
                   "did not reproduce", "alternation"):  # fmt: skip
        assert phrase in notes
    assert "OutOfMemory: no room" in page.text
    assert "last words" in page.text


def test_what_limits_a_pilot_stands_in_the_notes_and_once(tmp_path: Path) -> None:
    content = samples.summary()
    untested = "Operation under faults was not tested."
    slower = "Three combined methods are slower than their target."
    content["verdict"]["reasons"] += [
        samples.finding("faults_untested", untested), samples.finding("drafting_slower", slower),
    ]  # fmt: skip
    page = page_with(tmp_path, content)
    assert untested in page.one("section", "notes").text
    assert page.text.count(untested) == 1
    assert page.one("section", "why").text.endswith(f"Also found{slower}")
    content["verdict"]["decision"] = "undecided"
    page = page_with(tmp_path, content)
    assert untested in page.one("section", "why").text
    assert "Limits of this verdict" in page.text


def test_an_open_group_names_a_candidate_and_recommends_nothing(tmp_path: Path) -> None:
    content = samples.summary()
    entry = content["verdict"]["by_group"][0]
    entry["decision"] = "undecided"
    page = page_with(tmp_path, content)
    name = next(m["name"] for m in content["methods"] if m["method_id"] == entry["method_id"])
    assert f"Verdict for this group: Undecided; best candidate {name}." in page.text


def test_unknown_finding_falls_back_to_english_and_says_that_it_is(tmp_path: Path) -> None:
    page = page_with(tmp_path, samples.summary(), "ja")
    fallback = next(e for e in page.all("span", "english") if "net value" in e.text)
    assert fallback.attributes["lang"] == "en"
    assert not page_with(tmp_path, samples.summary(), "en").all("span", "english")


def test_names_cannot_smuggle_markup(tmp_path: Path) -> None:
    content = samples.summary()
    evil = '<script>alert(1)</script>" onload="x'
    for m in content["methods"]:
        m["name"] = evil + m["name"]
        m["device"] = evil
    content["name"] = evil
    content["failures"] = [{"group": evil, "method_id": evil, "block": evil, "error": evil}]
    content["verdict"]["reasons"] = [samples.finding(evil, evil)]
    page = page_with(tmp_path, content, host={evil: evil})
    assert not page.all("script")
    assert not [e for e in page.elements if "onload" in e.attributes]
    assert evil in page.text


def test_infinite_and_negative_money(tmp_path: Path) -> None:
    content = samples.summary()
    cost = content["verdict"]["cost"] = dict(content["verdict"]["cost"])
    cost |= {
        "net_value": samples.interval(-5000), "monthly_saving": samples.interval(-10),
        "payback_months": {"mean": None, "ci_low": 40.0, "ci_high": None, "n": 8, "level": 0.95},
    }  # fmt: skip
    facts = page_with(tmp_path, content).one("dl", "facts").text
    assert "−$5,000" in facts
    assert "never" in facts
    assert "40.0 months to never" in facts
    assert "回収不能" in page_with(tmp_path, content, "ja").one("dl", "facts").text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_bare_summary_still_makes_a_page_without_empty_figures(tmp_path: Path, lang: str) -> None:
    content = {"schema_version": 1, "methods": [], "verdict": None}
    folder = samples.write(tmp_path / "r", content)
    (folder / "environment.json").unlink()
    (folder / "config.yaml").unlink()
    page = page_of(folder, lang)
    assert not page.all("svg")
    assert not page.all("figure")
    assert page.all("h2")[0].text.startswith({"en": "Undecided", "ja": "判定保留"}[lang])


def test_failed_methods_and_missing_figures_render(tmp_path: Path) -> None:
    content = samples.summary()
    keep = {"method_id", "name", "arm", "group", "role", "drafter", "shape"}
    for m in content["methods"]:
        if m["role"] == "method":
            for key in set(m) - keep:
                m[key] = None
            m["status"] = "failed"
    content |= {"arms": [], "noise_floor": None, "sensitivity": None, "groups": None}
    content["interaction"] = [
        e | {"mean": None, "decision": None, "reason": samples.finding("x", "It failed.")}
        for e in content["interaction"]
    ]
    page = page_with(tmp_path, content)
    assert page.text.count("failed") > 20
    assert "It failed." in page.text
    assert "so there is no figure" in page.text


def test_numbers_that_are_not_numbers_read_as_missing(tmp_path: Path) -> None:
    content = samples.summary()

    def spoil(node: Any, depth: int = 0) -> Any:
        if isinstance(node, dict):
            return {k: v if k == "schema_version" else spoil(v, depth + 1)
                    for k, v in node.items()}  # fmt: skip
        if isinstance(node, list):
            return [spoil(v, depth + 1) for v in node]
        return math.nan if isinstance(node, float) else node

    text = page_with(tmp_path, spoil(content)).text
    assert "nan" not in text.lower().split()
    assert "None" not in text


def test_one_group_and_two_hundred_methods(tmp_path: Path) -> None:
    content = samples.summary()
    group = samples.GROUPS[0]
    content["methods"] = [
        m for m in content["methods"] if m["group"] == group[0] and m["arm"] == "baseline"
    ] + [samples.method(group, "w4a8", "ngram", None, g) for g in range(2, 64)] * 3
    for number, m in enumerate(content["methods"]):
        if m["role"] == "method":
            content["methods"][number] = m | {"name": f"method {number}", "method_id": f"m{number}"}
    content["groups"] = content["groups"][:1]
    html = build(samples.write(tmp_path / "r", content)).read_text("utf-8")
    assert all(f"method {n}" in html for n in range(2, len(content["methods"])))
    for figure in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        assert len(figure.encode()) < MAX_FIGURE_BYTES
    assert "more rows are in the tables" in html


def test_refuses_what_it_cannot_read_and_keeps_the_old_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = samples.write(tmp_path / "r")
    before = build(folder).read_bytes()
    summary = folder / "summary.json"
    for text, phrase in (
        (json.dumps({"schema_version": 2, "methods": []}), "schema_version 2"),
        ("{", "not valid JSON (line 1"),
        ("[]", "must hold a JSON object"),
        (json.dumps({"schema_version": 1}), "no list `methods`"),
    ):
        summary.write_text(text, "utf-8")
        assert main([str(folder)]) == 2
        assert phrase in capsys.readouterr().err
    summary.write_bytes(b"\xff\xfe")
    assert main([str(folder)]) == 2
    assert "not UTF-8" in capsys.readouterr().err
    summary.unlink()
    with pytest.raises(ReportError, match=r"python -m harness\.analysis"):
        build(folder)
    with pytest.raises(ReportError, match="There is no results folder"):
        build(tmp_path / "absent")
    assert (folder / "report.html").read_bytes() == before
    assert [p.name for p in folder.iterdir() if p.name.startswith(".")] == []


def test_command_line_writes_where_and_in_what_language_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = samples.write(tmp_path / "r")
    out = tmp_path / "other.html"
    assert main([str(folder), "--lang", "ja", "--out", str(out)]) == 0
    assert '<html lang="ja">' in out.read_text("utf-8")
    assert not (folder / "report.html").exists()
    (folder / "config.yaml").write_text("report: {lang: ja}\n", "utf-8")
    assert main([str(folder)]) == 0
    assert '<html lang="ja">' in (folder / "report.html").read_text("utf-8")
    assert str(folder / "report.html") in capsys.readouterr().out
    assert main([str(folder), "--out", str(tmp_path / "absent" / "x.html")]) == 2


def test_same_summary_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = samples.write(tmp_path / "r")
    assert build(folder).read_bytes() == build(folder).read_bytes()
