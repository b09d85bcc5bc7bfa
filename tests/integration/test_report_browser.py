"""The report in a real browser without scripts: nothing sticks out of the page at any width."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from reports.build import build
from reports.language import LANGUAGES
from tests.unit import report_samples as samples

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
WIDTHS = (360, 400, 768, 1200)

# The report sits in frames that may not run scripts; the page around them measures them.
FRAME = (
    '<iframe sandbox="allow-same-origin" width="{width}" height="800" srcdoc="{report}"></iframe>'
)
MEASURE = """
<script>
addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument;
    const boxes = [...page.querySelectorAll("svg text")].filter(text => {
      const box = text.getBoundingClientRect();
      const svg = text.closest("svg").getBoundingClientRect();
      return box.left < svg.left - 1 || box.right > svg.right + 1;
    });
    return [frame.width, page.documentElement.scrollWidth, page.documentElement.clientWidth,
            page.querySelectorAll("svg").length, boxes.map(b => b.textContent).join("|")].join(";");
  });
  document.title = found.join("#");
});
</script>
"""


def browse(tmp_path: Path, *arguments: str) -> str:
    """Standard output of headless Chromium with a profile of its own and no network."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_page_scrolls_sideways_and_no_label_leaves_its_figure(tmp_path: Path, lang: str) -> None:
    report = build(samples.write(tmp_path / "results"), lang).read_text("utf-8")
    frames = "".join(FRAME.format(width=w, report=html.escape(report)) for w in WIDTHS)
    outer = tmp_path / "outer.html"
    outer.write_text(
        f"<!DOCTYPE html><meta charset=utf-8><title></title>{frames}{MEASURE}", "utf-8"
    )
    dom = browse(tmp_path, "--virtual-time-budget=10000", "--dump-dom", outer.as_uri())
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    assert title is not None
    measured = [entry.split(";", 4) for entry in html.unescape(title.group(1)).split("#")]
    assert [int(entry[0]) for entry in measured] == list(WIDTHS)
    for width, scroll, client, figures, outside in measured:
        assert int(scroll) <= int(client) <= int(width)
        assert int(figures) >= 8
        assert outside == "", f"labels outside their figure at {width}"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_prints_to_pages(tmp_path: Path, lang: str) -> None:
    report = build(samples.write(tmp_path / "results"), lang)
    target = tmp_path / "report.pdf"
    browse(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={target}", report.as_uri())
    content = target.read_bytes()
    assert content.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) >= 5
