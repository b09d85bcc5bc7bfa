"""Plans, measures and analyses: `python -m harness.sweep` is its entry."""
