"""The traffic that a run is measured on: prompts, their lengths, and the draws of its trials."""

from harness.workload.context import Pool
from harness.workload.draw import Draw, GroupDraw
from harness.workload.errors import WorkloadError
from harness.workload.prompt import Prompt, Tokenizer
from harness.workload.workload import Workload, load

__all__ = ["Draw", "GroupDraw", "Pool", "Prompt", "Tokenizer", "Workload", "WorkloadError", "load"]
