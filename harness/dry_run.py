"""`--dry-run`: the groups and cells of a sweep, and how long it may take; nothing is measured."""

from __future__ import annotations

from rich.console import Console

from harness import model_file, plan
from harness.bench import read_workload
from harness.config import Settings
from harness.errors import ConfigError
from harness.plan import Group, Plan
from harness.progress import duration
from harness.schedule import Spent

ASSUMED_TRIAL_S = 1.5
"""Seconds of a trial where none was timed yet: the demo model on two cores, roughly."""


def show(settings: Settings, console: Console) -> None:
    """Print the plan. Raises ConfigError as the sweep would, save for a missing worker or model."""
    model, name = settings.model_path.stem, str(settings.config["workload"].get("name"))
    notes = []
    try:
        file = model_file.open_model(settings.config["model"])
    except ConfigError as error:
        notes.append(f"{error} The workload was not read without it.")
    else:
        workload = read_workload(settings, file)
        model, name = file.name, workload.name
        notes.append(f"The workload holds {len(workload.prompts)} prompts.")
        if workload.source.get("instead_of"):
            notes.append(f"It is {name}, in the place of {workload.source['instead_of']}.")
    whole = plan.build(settings, model=model, workload=name, device=str(settings.config["device"]))
    for group in whole.groups:
        _group(group, console)
    _estimate(settings, whole, console)
    for note in notes:
        _say(console, note)


def _group(group: Group, console: Console) -> None:
    _say(
        console,
        f"{group.name}: batch size {group.batch_size}, context length {group.context_length}, "
        f"{group.draw_count} prompts a trial, {len(group.cells)} cells",
    )
    for cell in group.cells:
        label = cell.method.arm
        if cell.role == "noise":
            label = "A/A: the baseline again"
        elif cell.method.quantized_drafter:
            label += ", quantized drafter"
        _say(console, f"  {cell.method.method_id:<28} {cell.method.name} ({label})")


def _estimate(settings: Settings, whole: Plan, console: Console) -> None:
    """The time of the least blocks, from earlier blocks of the folder or else assumed."""
    spent = Spent.read(settings.results, 0.0)
    blocks = settings.schedule.min_blocks
    least, assumed = 0.0, False
    for group in whole.groups:
        took = spent.block_s(group.name)
        assumed |= took is None
        least += blocks * (len(group.cells) * ASSUMED_TRIAL_S if took is None else took)
    basis = f"assuming {ASSUMED_TRIAL_S:g} s a trial" if assumed else "as measured before"
    budget_s = settings.schedule.budget_s
    if budget_s is None:
        more = "More blocks are measured until every interval is narrow enough (stats.target)."
    elif budget_s == 0:
        more = "No further blocks are measured (schedule.budget_s=0)."
    else:
        more = (
            f"More blocks are measured until {duration(budget_s)} have passed, where a comparison "
            "is undecided."
        )
    _say(
        console,
        f"{whole.size()}, at least {blocks} blocks each: about {duration(least)} ({basis}). {more}",
    )


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
