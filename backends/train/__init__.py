"""Training of drafters: distillation from a packed target's own answers (docs/drafters.md)."""
