"""Figures of the report, one concept a module; each function returns inline SVG or None."""
