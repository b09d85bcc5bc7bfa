"""HTML files of the reports: one template with the style sheet inside, written as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports.source import ReportError

_TEMPLATES = Path(__file__).parent / "templates"


def render_page(template: str, context: Mapping[str, Any]) -> str:
    """The template `template` filled with `context`. A name that it lacks is an error."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8"))
    return environment.get_template(template).render(context, css=css)


def write_page(html: str, folder: Path, out: Path | str | None) -> Path:
    """Writes `out`, by default report.html in `folder`, replacing it as a whole; returns its path.

    Raises ReportError where the file cannot be written.
    """
    target = Path(out) if out else folder / "report.html"
    temporary = target.with_name(f".{target.name}.partial")
    try:
        temporary.write_text(html, encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        raise ReportError(f"{target} cannot be written: {error.strerror}.") from error
    return target
