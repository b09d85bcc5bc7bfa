"""Measurements beside the sweeps. They print and store figures, and assert nothing."""
