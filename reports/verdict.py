"""Page one: the verdict in words, the figures it rests on, and what a reader must know first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.background import failed_cells, half_width
from reports.language import Language, Message
from reports.methods import ARMS, Method, find_method, mapping
from reports.money import assumed_things, money_cell, payback_cell
from reports.source import Interval, Results, as_interval

# Findings that keep a pilot from being adopted. They stand in the box of notes, those of
# `_SAID_BY_NOTES` in the longer words that the box has for them.
_LIMITS = frozenset({
    "demand_assumed", "price_assumed", "prompts_assumed", "faults_untested",
    "dequantized_baseline", "synthetic", "replayed", "quantized_drafter", "output_differs",
    "noise_floor_open",
})  # fmt: skip
_SAID_BY_NOTES = _LIMITS - {"prompts_assumed", "faults_untested", "noise_floor_open"}
# Findings about other methods than the one that the verdict speaks of.
_ALSO_FOUND = frozenset({"combined_slower", "drafting_slower", "larger_batch_cheaper"})
RECOMMENDING = ("adopt", "pilot")
DECISIONS = ("adopt", "pilot", "reject", "undecided")


@dataclass(frozen=True)
class Fact:
    """A figure of page one: what it is, its value in large, and lines beneath."""

    label: str
    value: str
    subs: Sequence[str]


@dataclass(frozen=True)
class Verdict:
    """What page one shows."""

    decision: str
    recommended: bool
    word: str
    banner: str
    answer: str
    meaning: str
    facts: Sequence[Fact]
    reasons: Sequence[Message]
    conditions: Sequence[Message]
    next_measurement: Sequence[Message]
    also_found: Sequence[Message]
    notes: Sequence[Message]


def read_verdict(results: Results, methods: Sequence[Method], t: Language) -> Verdict:
    """Words the summary's verdict. A summary without one reads as undecided and says so."""
    given = mapping(results.summary.get("verdict"))
    decision = str(given.get("decision"))
    if decision not in DECISIONS:
        decision = "undecided"
    groups = list(dict.fromkeys(m.group for m in methods))
    group = given.get("group") or (groups[0] if groups else "")
    method = find_method(methods, group, given.get("method_id"))
    baseline = next((m for m in methods if m.group == group and m.role == "baseline"), None)
    arm = str(given.get("arm") or (method.arm if method else "none"))
    if arm not in ARMS:
        arm = "none"
    recommended = decision in RECOMMENDING and method is not None
    word = t(f"verdict_word.{decision}")
    what = t(f"arm_choice.{arm if recommended or arm == 'baseline' else 'none'}")
    findings = list(given.get("reasons") or [])
    notes = honesty_notes(results, methods, t)
    if decision == "pilot":
        limits = [f for f in findings if mapping(f).get("key") in _LIMITS]
        findings = [f for f in findings if f not in limits]
        notes += [t.message(f) for f in limits if f["key"] not in _SAID_BY_NOTES]
    also_found = [f for f in findings if mapping(f).get("key") in _ALSO_FOUND]
    reasons = [t.message(f) for f in findings if f not in also_found]
    if not given:
        reasons.insert(0, Message(t("verdict.missing"), t.code))
    following = given.get("next_measurement")
    return Verdict(
        decision=decision,
        recommended=recommended,
        word=word,
        banner=t("verdict.banner", word=word, what=what),
        answer=_answer(decision, arm, method, baseline, given, t),
        meaning=t(f"meaning.{decision}"),
        facts=_facts(results, given, method, baseline, recommended, t),
        reasons=reasons,
        conditions=[t.message(item) for item in given.get("conditions") or []],
        next_measurement=[t.message(following)] if following else [],
        also_found=[t.message(f) for f in also_found],
        notes=notes,
    )


def _answer(
    decision: str,
    arm: str,
    method: Method | None,
    baseline: Method | None,
    given: Mapping[str, Any],
    t: Language,
) -> str:
    """One sentence on "quantize, speculate, or both?"."""
    names = {"baseline": baseline.name if baseline else t("arm.baseline")}
    if method is None or method.role == "baseline":
        key = {"reject": "reject_bare", "undecided": "undecided_bare"}.get(decision, "baseline")
        return t(f"answer.{key}", **names)
    speedup = as_interval(given.get("speedup")) or method.speedup
    key = arm if decision in RECOMMENDING and arm != "none" else decision
    if key in RECOMMENDING:
        key = method.arm
    end_to_end = as_interval(given.get("end_to_end_speedup")) or method.interval(
        "end_to_end_speedup"
    )
    return t(
        f"answer.{key}",
        method=method.name,
        speedup=speedup,
        end_to_end=end_to_end.mean if end_to_end else None,
        **names,
    )


def _facts(
    results: Results,
    given: Mapping[str, Any],
    method: Method | None,
    baseline: Method | None,
    recommended: bool,
    t: Language,
) -> list[Fact]:
    settings = mapping(results.summary.get("cost")) or mapping(results.config.get("cost"))
    cost = mapping(given.get("cost")) or mapping(method.value("cost") if method else None)
    label = t("fact.method" if recommended else "fact.candidate")
    if method is None:
        return [Fact(label, t("fact.no_method"), [])]
    speedup = as_interval(given.get("speedup")) or method.speedup
    end_to_end = as_interval(given.get("end_to_end_speedup")) or method.interval(
        "end_to_end_speedup"
    )
    what = assumed_things(settings, t)
    projected = [t("fact.projected", what=what)] if what else []
    months = settings.get("horizon_months")
    baseline_cost = as_interval(
        mapping(baseline.value("cost") if baseline else None).get("per_million_tokens")
    )
    return [
        Fact(
            label, method.name,
            [t("fact.method_sub", arm=t.name("arm", method.arm),
               baseline=baseline.name if baseline else None)],
        ),
        Fact(t("fact.speedup"), t.value("times", speedup.mean if speedup else None),
             _speedup_lines(speedup, end_to_end, t)),
        _quality(method, t),
        _sureness(results, method, speedup, t),
        _money_fact(
            t("fact.net_value", months=months) if months else t("fact.net_value_bare"),
            money_cell(cost.get("net_value"), t), projected,
            cost, t,
        ),
        _money_fact(
            t("fact.saving"), money_cell(cost.get("monthly_saving"), t), projected, cost, t
        ),
        _money_fact(t("fact.payback"), payback_cell(cost, t), projected, cost, t),
        _money_fact(
            t("fact.cost"), money_cell(cost.get("per_million_tokens"), t),
            [t("fact.cost_sub", baseline=baseline_cost)] if baseline_cost else [], cost, t,
        ),
    ]  # fmt: skip


def _speedup_lines(speedup: Interval | None, end_to_end: Interval | None, t: Language) -> list[str]:
    lines = []
    if speedup and speedup.bounded:
        lines.append(t("fact.speedup_sub", level=speedup.level or 0.95, speedup=speedup))
    if end_to_end:
        lines.append(t("fact.end_to_end", value=end_to_end))
    return lines


def _quality(method: Method, t: Language) -> Fact:
    """Quality of the method's precision; for unchanged precision, that its output is the same."""
    label = t("fact.quality")
    exact = [t("fact.lossless_note")] if method.value("lossless") is True else []
    agreement = method.interval("agreement_rate", "quality")
    if agreement is None:
        if method.arm == "speculation" and exact:
            return Fact(label, t("fact.lossless"), [t("fact.lossless_sub")])
        return Fact(label, t("fact.quality_unmeasured"), [t("fact.quality_unmeasured_sub")])
    lines = []
    if agreement.bounded:
        perplexity = method.interval("perplexity_ratio", "quality")
        lines = [t("fact.quality_sub", value=agreement, perplexity=perplexity)]
    return Fact(label, t("fact.quality_agreement", value=agreement.mean), lines + exact)


def _sureness(results: Results, method: Method, speedup: Interval | None, t: Language) -> Fact:
    """Blocks, half-width and noise floor behind the verdict's speedup."""
    label = t("fact.sure")
    half = half_width(speedup)
    blocks = method.mean("blocks")
    if half is None or blocks is None:
        return Fact(label, t("fact.not_computed"), [])
    floor = mapping(mapping(results.summary.get("noise_floor")).get("groups")).get(method.group)
    noise = as_interval(floor)
    key = "fact.sure_sub" if noise else "fact.sure_sub_no_noise"
    return Fact(label, t("fact.sure_blocks", n=int(blocks)), [t(key, half=half, noise=noise)])


def _money_fact(label: str, cell: Any, lines: list[str], cost: Any, t: Language) -> Fact:
    if not mapping(cost) or cell.main == t("format.none"):
        return Fact(label, t("fact.not_computed"), [t("fact.not_computed_sub")])
    spread = [t("fact.interval_sub", range=cell.sub)] if cell.sub else []
    return Fact(label, cell.main, spread + lines)


def honesty_notes(results: Results, methods: Sequence[Method], t: Language) -> list[Message]:
    """What limits the figures, most serious first. Counts are of method and group."""
    measured = [m for m in methods if m.role == "method"]
    settings = mapping(results.summary.get("cost")) or mapping(results.config.get("cost"))
    model = mapping(results.environment.get("model"))
    what = assumed_things(settings, t)
    counts = {
        "synthetic": sum(bool(m.value("synthetic")) for m in measured),
        "replay": sum(m.value("acceptance") == "replay" for m in measured),
        "failed": failed_cells(results.summary.get("failures") or []),
        "rejected_by_quality": sum(
            mapping(m.value("quality_gate")).get("passed") is False for m in measured
        ),
        "mismatches": sum(m.value("lossless") is False for m in measured),
        "not_interleaved": sum(m.value("interleaved") is False for m in measured),
        "quantized_drafter": sum(
            m.arm == "speculation" and m.value("drafter_label") == "quantized_drafter"
            for m in measured
        ),
    }
    notes: list[tuple[str, dict[str, Any]]] = []
    if results.environment.get("fake"):
        notes.append(("fake", {}))
    notes += [(key, {"n": counts[key]}) for key in ("synthetic", "replay") if counts[key]]
    if model.get("dequantized_baseline"):
        notes.append(("dequantized", {}))
    if results.config.get("trace") == "tokens":
        notes.append(("traced", {}))
    if what:
        notes.append(("assumed", {"what": what}))
    notes += [(key, {"n": n}) for key, n in counts.items()
              if n and key not in ("synthetic", "replay")]  # fmt: skip
    return [Message(t(f"note.{key}", **params), t.code) for key, params in notes]
