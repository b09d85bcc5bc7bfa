"""Rows of the three-way table and of the full tables, worded in the report's language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.language import Language
from reports.methods import ArmChoice, Method, mapping
from reports.source import Interval


@dataclass(frozen=True)
class Cell:
    """A figure with its interval beneath it, or a word."""

    main: str
    sub: str = ""
    text: bool = False


@dataclass(frozen=True)
class Row:
    """A method's row; `kind` becomes its class (decision or status)."""

    arm: str
    label: str
    sub: str
    kind: str
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Table:
    """Headings (label, unit) for the cells after the row label, and the rows; `decided` where the
    last column holds decisions."""

    headings: Sequence[tuple[str, str]]
    rows: Sequence[Row]
    decided: bool = False


@dataclass(frozen=True)
class Column:
    """A column: locale key of its heading, how a value reads, and where it comes from."""

    key: str
    form: str
    field: str
    inside: str | None = None


_BARE = {"times": "fixed2", "percent": "hundredths", "money": "amount"}
"""Formats of the ends beneath a figure, where the unit stands above them already."""

THREE_WAY = (
    Column("speedup", "times", "speedup"),
    Column("end_to_end_speedup", "times", "end_to_end_speedup"),
    Column("throughput", "number", "output_throughput"),
    Column("tpot", "number", "mean_tpot_ms"),
    Column("ttft", "number", "mean_ttft_ms"),
    Column("p99_itl", "number", "p99_itl_ms"),
    Column("p99_round", "number", "p99_round_ms"),
    Column("agreement", "percent", "agreement_rate", "quality"),
    Column("perplexity_ratio", "ratio", "perplexity_ratio", "quality"),
    Column("cost", "money", "per_million_tokens", "cost"),
)
SPEED = (
    Column("speedup", "times", "speedup"),
    Column("end_to_end_speedup", "times", "end_to_end_speedup"),
    Column("throughput", "number", "output_throughput"),
    Column("tpot", "number", "mean_tpot_ms"),
    Column("ttft", "number", "mean_ttft_ms"),
    Column("p99_itl", "number", "p99_itl_ms"),
    Column("p99_round", "number", "p99_round_ms"),
    Column("weight_bytes", "mega", "weight_bytes"),
    Column("roofline", "percent0", "roofline_fraction"),
    Column("blocks", "count", "blocks"),
)
DRAFTING = (
    Column("versus_target", "times", "versus_target"),
    Column("tau", "fixed2", "acceptance_length"),
    Column("acceptance_rate", "percent", "acceptance_rate"),
    Column("reached_rate", "percent", "reached_acceptance_rate"),
    Column("agreement", "percent", "agreement_rate", "quality"),
    Column("kl", "number", "kl", "quality"),
    Column("perplexity_ratio", "ratio", "perplexity_ratio", "quality"),
    Column("cost", "money", "per_million_tokens", "cost"),
)

QUALITY = (
    Column("agreement", "percent", "agreement_rate", "quality"),
    Column("near_tie_flips", "percent", "near_tie_flips", "quality"),
    Column("clear_flips", "percent", "clear_flips", "quality"),
    Column("kl", "number", "kl", "quality"),
    Column("perplexity_ratio", "ratio", "perplexity_ratio", "quality"),
)
TASK = (
    Column("accuracy", "percent", "accuracy", "task"),
    Column("accuracy_difference", "percent", "difference", "task"),
    Column("mcnemar", "number", "p", "task"),
)


def three_way(choices: Sequence[ArmChoice], t: Language) -> Table:
    """The baseline and the chosen method of each arm; an arm without one says why."""
    rows = []
    for choice in choices:
        if choice.method is None:
            why = t.message(choice.reason).text if choice.reason else t("table.arm_absent")
            rows.append(Row(t(f"arm.{choice.arm}"), "", "", "absent", [Cell(why, text=True)]))
            continue
        last = [decision_cell(choice.method, t)]
        rows.append(_row(choice.method, THREE_WAY, t, last, choice.estimates))
    return Table([*_headings(THREE_WAY, t), (t("column.decision"), "")], rows, decided=True)


def speed_table(methods: Sequence[Method], t: Language) -> Table:
    """Every method of a group with its speed."""
    rows = [_row(m, SPEED, t, [decision_cell(m, t)]) for m in methods]
    return Table([*_headings(SPEED, t), (t("column.decision"), "")], rows, decided=True)


def drafting_table(methods: Sequence[Method], t: Language) -> Table:
    """Every method of a group with its drafting, quality and cost."""
    rows = [_row(m, DRAFTING, t, [_lossless_cell(m, t)]) for m in methods]
    return Table([*_headings(DRAFTING, t), (t("column.lossless"), "")], rows)


def quality_table(methods: Sequence[Method], t: Language) -> Table | None:
    """Every target precision of a group with its quality; with graded answers, their accuracy.

    A method with a drafter has its target's quality, so that plain methods alone stand here. None
    where none was scored.
    """
    graded = any(mapping(m.value("task")) for m in methods)
    columns = QUALITY + TASK if graded else QUALITY
    rows = [
        _row(m, columns, t, [gate_cell(m, t)])
        for m in methods
        if not m.speculative
        and m.role != "noise"
        and (mapping(m.value("quality")) or mapping(m.value("task")))
    ]
    head = [*_headings(columns, t), (t("money.column_gate"), "")]
    return Table(head, rows) if rows else None


def gate_cell(method: Method, t: Language) -> Cell:
    """Whether the quality gate passed; blank where nothing was scored."""
    passed = mapping(method.value("quality_gate")).get("passed")
    if passed is None:
        return Cell(t("format.none"), text=True)
    return Cell(t("money.passed" if passed else "money.missed"), text=True)


def decision_cell(method: Method, t: Language) -> Cell:
    """What the comparison with the baseline came to, or why there is none."""
    if not method.ok:
        return Cell(t.name("status", method.status), text=True)
    if method.role == "noise":
        return Cell(t("decision.noise"), text=True)
    if mapping(method.value("quality_gate")).get("passed") is False:
        return Cell(t.name("decision", method.decision), t("status.rejected_by_quality"), text=True)
    return Cell(t.name("decision", method.decision), text=True)


def labels_of(methods: Sequence[Method]) -> dict[int, str]:
    """Label of each method by `id()`: its name, with its identifier where the name is not unique
    in its group."""
    names = Counter((m.group, m.name) for m in methods if m.role != "noise")
    return {
        id(m): m.name if names[m.group, m.name] <= 1 else f"{m.name} [{m.method_id}]"
        for m in methods
    }


def _row(
    method: Method,
    columns: Sequence[Column],
    t: Language,
    last: Sequence[Cell],
    estimates: Mapping[str, Interval] | None = None,
) -> Row:
    marks = [t(f"mark.{key}") for key, holds in _marks(method) if holds]
    return Row(
        arm=t.name("arm", method.arm),
        label=method.name,
        sub=t("format.list_separator").join(marks),
        kind=method.decision if method.ok else method.status,
        cells=[*(_cell(method, column, t, estimates) for column in columns), *last],
    )


def _marks(method: Method) -> list[tuple[str, bool]]:
    return [
        ("noise", method.role == "noise"),
        ("synthetic", bool(method.value("synthetic"))),
        ("replay", method.value("acceptance") == "replay"),
        (
            "quantized_drafter",
            method.arm == "speculation" and method.value("drafter_label") == "quantized_drafter",
        ),
        ("not_interleaved", method.value("interleaved") is False),
    ]


def _cell(
    method: Method, column: Column, t: Language, estimates: Mapping[str, Interval] | None = None
) -> Cell:
    """The figure; the baseline's speedup is 1 by definition and has no interval. `estimates` that
    did not choose the method take the place of its own."""
    found = (estimates or {}).get(column.field) or method.interval(column.field, column.inside)
    if method.role == "baseline" and column.field.endswith("speedup"):
        return Cell(t.value("times", 1.0))
    if found is None:
        return Cell(t("format.none"))
    bare = _BARE.get(column.form, column.form)
    return Cell(
        t.value(column.form, found.mean), t.short_range(found, lambda end: t.value(bare, end))
    )


def _lossless_cell(method: Method, t: Language) -> Cell:
    lossless = method.value("lossless")
    if lossless is None:
        return Cell(t("format.none"), text=True)
    return Cell(t("lossless.true" if lossless else "lossless.false"), text=True)


def _headings(columns: Sequence[Column], t: Language) -> list[tuple[str, str]]:
    return [(t(f"column.{c.key}"), t(f"unit_of.{c.key}", currency=t.currency)) for c in columns]
