"""What the groups of a sweep share while they are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from backends.client import WorkerFailure
from backends.tokenizer import TokenizerError
from harness.config import Settings
from harness.drafter_files import DrafterFile
from harness.errors import ConfigError
from harness.model_file import ModelFile
from harness.plan import Group, Identity, Plan
from harness.results import ResultsFolder
from harness.tokenizer import Tokenizer
from harness.trial import Setting
from harness.vocabulary import NATURAL
from harness.workers import LoadedDrafter, LoadSpec, WorkerPool
from harness.workload import Draw, Workload
from harness.workload import load as load_workload


@dataclass(frozen=True)
class Bench:
    """Everything that measuring a group needs. Groups are independent of each other.

    `hellos` holds the workers that started; `unstarted` tells why the others did not, whose cells
    fail by that reason.
    """

    settings: Settings
    model: ModelFile
    drafters: Mapping[str, DrafterFile]
    workload: Workload
    plan: Plan
    identity: Identity
    folder: ResultsFolder
    pool: WorkerPool
    hellos: Mapping[str, Mapping[str, Any]]
    unstarted: Mapping[str, WorkerFailure]

    @property
    def fingerprint(self) -> str:
        """Equal where this sweep may continue an earlier one."""
        return self.plan.fingerprint(self.identity)

    @cached_property
    def quality_group(self) -> str:
        """Name of the group in which precisions are scored: once a model is enough."""
        for group in self.plan.groups:
            if group.batch_size == 1 and group.context_length == NATURAL:
                return group.name
        return self.plan.groups[0].name

    def text(self, tokens: Sequence[int]) -> str:
        """An answer's text, without special tokens."""
        return self._tokenizer.decode(tokens, skip_special_tokens=True)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer(self.model.metadata)

    def draw(self, group: Group, block: int) -> Draw:
        """The prompts of a block, the same whenever it is run."""
        return self.workload.draw(
            block,
            group.draw_count,
            group.context_length,
            self.settings.seed,
            group_index=group.index,
            groups=[other.draw for other in self.plan.groups],
        )

    def applicable(self, group: Group) -> bool:
        """False where no prompt of the workload fits the group's context length."""
        return self.draw(group, 0).applicable

    def setting(self, group: Group, block: int) -> Setting:
        """What all trials of a block share."""
        return Setting(
            group=group,
            block=block,
            draw=self.draw(group, block),
            stop_ids=self.workload.stop_ids,
            identity=self.identity,
            model=self.model.metadata,
            model_name=self.model.name,
            synthetic_model=self.model.synthetic is not None,
            synthetic_drafters=frozenset(
                name for name, drafter in self.drafters.items() if drafter.metadata is None
            ),
            seed=self.settings.seed,
            workload_name=self.workload.name,
            timeout_s=self.settings.schedule.trial_timeout_s,
            results=self.folder.path,
            traced_backends=frozenset(
                name
                for name, hello in self.hellos.items()
                if self.settings.trace == "tokens" and traces_tokens(hello)
            ),
        )

    def load_spec(self, group: Group, backend: str) -> LoadSpec:
        """What the worker of `backend` must hold for `group`."""
        known = self.hellos[backend]["capabilities"]["precisions"]
        return LoadSpec(
            model=self.model.request(),
            precisions=frozenset(group.precisions(backend)) & frozenset(known),
            max_context=max_context(self.workload, group, self.model.max_position),
            max_batch=group.batch_size,
            seed=self.settings.seed,
            drafters=tuple(
                LoadedDrafter(self.drafters[name], frozenset(precisions))
                for name, precisions in sorted(group.drafter_precisions(backend).items())
            ),
        )


def max_context(workload: Workload, group: Group, max_position: int) -> int:
    """Tokens that a sequence of the group holds at most: prompt, output and drafted ones."""
    longest = max(
        (len(p.token_ids) if group.context_length == NATURAL else int(group.context_length))
        + p.max_new_tokens
        for p in workload.prompts
    )
    return min(longest + group.most_pending + 1, max_position)


def read_workload(settings: Settings, model: ModelFile) -> Workload:
    """Load the workload for a model. Raises ConfigError."""
    try:
        return load_workload(settings.config["workload"], Tokenizer(model.metadata), model.metadata)
    except TokenizerError as error:
        raise ConfigError(f"{model.path}: {error}") from error


def traces_tokens(hello: Mapping[str, Any]) -> bool:
    """True where a worker's `hello` says that it writes token traces."""
    return "tokens" in hello["capabilities"].get("trace", ())
