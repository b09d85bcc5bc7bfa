"""Checkpoints into packed model files (docs/packed-format.md)."""
