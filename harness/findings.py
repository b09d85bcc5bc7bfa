"""The sentences of an analysis: a key, its parameters, and the English text.

The report says the same in another language from `key` and `params`, so every figure of a sentence
is a parameter of its own.
"""

from __future__ import annotations

from typing import Any

Finding = dict[str, Any]

TEXTS = {
    # why the verdict is what it is
    "net_value_positive": "Even at the low end of its interval the net value over {months:g} "
    "months is above zero ({low:,.0f} to {high:,.0f} {currency}).",
    "net_value_negative": "No method that passes the quality gate has a net value above zero over "
    "{months:g} months, even at the high end of its interval (at most {high:,.0f} {currency}).",
    "net_value_open": "The interval of the net value, {low:,.0f} to {high:,.0f} {currency}, does "
    "not exclude zero.",
    "speedup_decided": "End to end {method} is {speedup:.2f} times as fast as the baseline "
    "({low:.2f} to {high:.2f}, {n} blocks).",
    "speedup_open": "End to end {method} is {speedup:.2f} times as fast as the baseline, with an "
    "interval of {low:.2f} to {high:.2f} from {n} blocks: this does not exclude a difference of "
    "less than {min_effect:.0%}.",
    "too_few_blocks": "Only {blocks} blocks were measured; a decision needs {min_blocks}.",
    "no_candidate": "No method of this group was measured without a failure, so there is nothing "
    "to decide on.",
    "cost_unknown": "The configuration has no `cost` block, so no net value can be computed.",
    "quality_failed_all": "No method passed the quality gate.",
    "quality_failed": "{method} is outside the quality tolerance: {measure} is {value:.4g} at the "
    "pessimistic end of its interval, and the limit is {limit:.4g}.",
    "quality_rejected_in_record": "{method} was refused for its quality when it was measured.",
    "quality_unmeasured": "The quality of {method} was not measured, so it cannot pass the gate.",
    "slo_failed": "{method} met the latency targets in {attainment:.0%} of {n} requests; "
    "{required:.0%} are required (TTFT {ttft_ms:g} ms, TPOT {tpot_ms:g} ms).",
    "synthetic": "{method} ran on synthetic weights, so it cannot be adopted.",
    "replayed": "The acceptance of {method} was replayed from a profile and not measured, so it "
    "cannot be adopted.",
    "demand_assumed": "The demand is assumed. Put your own into conf/cost.",
    "price_assumed": "The price of the device is assumed. Put your own into conf/cost.",
    "prompts_assumed": "The text of the prompts is assumed and not your traffic.",
    "faults_untested": "Operation under faults was not tested.",
    "dequantized_baseline": "The 16-bit baseline was dequantized from a quantized file, so the "
    "quality cost of quantizing could not be measured.",
    "combined_slower": "In group {group} the best combined method, {combined}, is slower than "
    "{single}, the best of {arm} alone: {ratio:.2f} times its speed ({low:.2f} to {high:.2f}).",
    "drafting_slower": "In group {group}, {count} of {total} combined methods are slower than "
    "their quantized target without a drafter; the slowest, {method}, runs at {ratio:.2f} times "
    "its speed ({low:.2f} to {high:.2f}).",
    "output_differs": "The output of {method} differs from its target's plain output at "
    "{mismatches} of {compared} tokens.",
    "quantized_drafter": "{method} is labelled speculation with a quantized drafter: it reads 4- "
    "or 8-bit weights for drafting.",
    "noise_floor_open": "Two runs of the same baseline in group {group} differ by a ratio of "
    "{ratio:.3f} ({low:.3f} to {high:.3f}), which is more than {min_effect:.0%}: the machine was "
    "not steady enough to trust differences of that size.",
    "larger_batch_cheaper": "The baseline alone at batch size {batch} costs {baseline_cost:.3g} "
    "{currency} per million output tokens, less than {method} here ({cost:.3g}): batching comes "
    "first where the traffic allows it.",
    # drafting: trees
    "tree_best": "Under {precision} the tree of size {nodes} is the fastest tree: {gain:.2f} "
    "times plain decoding ({low:.2f} to {high:.2f}). A round verifies it in {ratio:.2f} decode "
    "steps and yields {tau:.2f} tokens.",
    "tree_never": "Under {precision} no tree is surely faster than plain decoding: the best one, "
    "of size {nodes}, runs at {gain:.2f} times its speed ({low:.2f} to {high:.2f}). It takes "
    "{ratio:.2f} decode steps to verify and yields {tau:.2f} tokens a round.",
    "tree_stops": "Under {precision} a tree stops paying beyond size {nodes}: up to {more} nodes "
    "the acceptance length grows from {tau:.2f} to {more_tau:.2f} ({tau_factor:.2f} times), but "
    "the time of a round {time_factor:.2f} times, {verify_share:.0%} of it because of "
    "verification.",
    "tree_flat": "Under {precision} trees of up to {more} nodes are not surely slower than the "
    "best one, of size {nodes}: the acceptance length grows from {tau:.2f} to {more_tau:.2f} "
    "({tau_factor:.2f} times), and the time of a round {time_factor:.2f} times, "
    "{verify_share:.0%} of it because of verification.",
    "tree_grows": "Under {precision} the largest tree that was measured, of size {nodes}, is the "
    "fastest: here trees do not stop paying.",
    "tree_beside_chain": "Under {precision} the same drafter's best chain (γ={gamma}) runs at "
    "{chain_gain:.2f} times plain decoding, and its best tree, of size {nodes}, at {gain:.2f}.",
    "tree_ratio": "Verifying {nodes} drafted tokens takes {ratio:.2f} decode steps under "
    "{precision} ({low:.2f} to {high:.2f}); the study measured {study:.1f}.",
    "tree_effect_shown": "The study's effect shows: verifying {nodes} nodes takes {ratio:.2f} "
    "decode steps under {precision} and {wide_ratio:.2f} under {wide}. The tree runs at "
    "{gain:.2f} times plain decoding under {precision} and at {wide_gain:.2f} under {wide}.",
    "tree_effect_absent": "The study's effect does not show with these kernels: verifying "
    "{nodes} nodes takes {ratio:.2f} decode steps under {precision} and {wide_ratio:.2f} under "
    "{wide}. The tree runs at {gain:.2f} times plain decoding under {precision} and at "
    "{wide_gain:.2f} under {wide}.",
    # drafting: cascades
    "cascade_over_plain": "Under {precision} the cascade runs at {ratio:.2f} times plain "
    "decoding ({low:.2f} to {high:.2f}); the study reports {study:.2f} for a 70B target.",
    "cascade_over_tree": "Under {precision} the cascade runs at {ratio:.2f} times the head's "
    "best tree ({low:.2f} to {high:.2f}); the study reports {study:.2f}.",
    "cascade_fastest": "Under {precision} the cascade is the fastest of {count} ways of drafting.",
    "cascade_beaten": "{method} runs at {ratio:.2f} times the cascade's speed under {precision} "
    "({low:.2f} to {high:.2f}).",
    "cascade_model": "The cost formula gives {predicted:.2f} times plain decoding under "
    "{precision}, {error:.1%} from the {measured:.2f} that was measured.",
    "cascade_needs": "By the cost formula, with this cost of a round, {target:.2f} times plain "
    "decoding needs an acceptance length of {needed:.2f} under {precision}; {tau:.2f} was "
    "reached, and a round commits at most {most}.",
    "cascade_out_of_reach": "By the cost formula, with this cost of a round, {target:.2f} times "
    "plain decoding would need an acceptance length of {needed:.2f} under {precision}, and a "
    "round commits at most {most}: this target is not slow enough beside its drafters ({tau:.2f} "
    "was reached).",
    "cascade_needs_tree": "By the cost formula, {target:.2f} times the tree needs an acceptance "
    "length of {needed:.2f} under {precision}.",
    # drafting: shapes chosen while decoding
    "auto_choice": "{method}: the engine predicted {predicted:.2f} times plain decoding and "
    "measured {measured:.2f} beside it, with {switches:.1f} switches a trial. It runs at "
    "{ratio:.2f} times the speed of the best fixed shape, {best} ({low:.2f} to {high:.2f}).",
    "auto_alone": "{method}: the engine predicted {predicted:.2f} times plain decoding and "
    "measured {measured:.2f} beside it, with {switches:.1f} switches a trial. No fixed shape of "
    "the same drafter was measured.",
    # where it holds
    "holds_at": "It holds in group {group} (batch size {batch}, context {context}).",
    "batch_limit": "Measured to hold for batch sizes up to {max_batch}.",
    "other_at": "In group {group} (batch size {batch}, context {context}) {arm} is better: "
    "{method}.",
    "baseline_at": "In group {group} (batch size {batch}, context {context}) the baseline is to be "
    "kept.",
    "undecided_at": "In group {group} (batch size {batch}, context {context}) nothing is decided.",
    "workload_only": "It speaks of workload {workload} on {device} and of no other.",
    # what to measure next
    "first_blocks": "Measure {blocks} more blocks of group {group}.",
    "more_blocks": "Measure about {blocks} more blocks of group {group}: the interval of {method} "
    "has a half-width of {half_width:.1%}, and {needed:.1%} would decide.",
    "too_close": "{method} in group {group} lies so close to its limit that more blocks will not "
    "decide soon (half-width {half_width:.1%}); look for a faster method, or a lower cost.",
    "measure_quality": "Measure the quality of {method} in group {group}.",
    "measure_real_weights": "Measure {method} with trained weights and real acceptance.",
    "repair_failures": "Repair the methods that failed in group {group}, and measure them.",
    "meet_slo": "Find a setting of {method} in group {group} that meets the latency targets, for "
    "example a smaller batch.",
    "set_cost": "Give the configuration a `cost` block, for example cost=default.",
    # why a figure is missing
    "part_missing": "The {part} part of the comparison was not measured in this group.",
    "part_failed": "The {part} part of the comparison, {method}, failed.",
    "arm_not_measured": "No method of this arm was measured in this group.",
    "arm_failed": "Every method of this arm failed in this group.",
    "arm_rejected": "Every measured method of this arm failed the quality gate; the figures are "
    "those of the fastest of them, which may not be adopted.",
}


def finding(key: str, **params: Any) -> Finding:
    """The finding of a key. Raises KeyError where the key or a parameter of its text is missing."""
    return {"key": key, "params": params, "text": TEXTS[key].format(**params)}
