"""Helpers of the browser's tests: a page in the system's Chromium, which must not report any error."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright, expect
from service_world import World

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# Chromium runs as root in containers, where its sandbox does not work and /dev/shm is small.
WAIT_MS = 30_000
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


def chromium() -> str:
    """Return the path of Chromium. Skips the test where there is none, and fails it where one is required, as in CI."""
    named = os.environ.get("LMERGE_CHROMIUM")
    found = named or next((path for name in CHROMIUMS if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("CI") or os.environ.get("LMERGE_REQUIRE_BROWSER"):
            pytest.fail("a browser is required here: install chromium, or set LMERGE_CHROMIUM")
        pytest.skip("no Chromium: install it, or set LMERGE_CHROMIUM to its path")
    return found


@asynccontextmanager
async def browsing(
    port: int | None, view: str = "", *, width: int = 1280, height: int = 900, scheme: str = "http", **context: Any
) -> AsyncIterator[Page]:
    """Open the status page. ``view``: what follows the ``#``. At the end the page must have reported no error.

    ``context``: options of the browser's context, such as ``color_scheme``.
    """
    problems: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        try:
            opened = await browser.new_context(viewport={"width": width, "height": height}, **context)
            page = await opened.new_page()
            page.set_default_timeout(WAIT_MS)
            expect.set_options(timeout=WAIT_MS)
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
            await page.goto(f"{scheme}://localhost:{port}/status/{view and '#'}{view}")
            yield page
        finally:
            await browser.close()
    # Chromium itself reports each answer that is an error, and each connection that is refused.
    assert [problem for problem in problems if not problem.startswith("Failed to load resource")] == []


def viewed(world: World, view: str = "", **options: Any) -> Any:
    """Open the page of ``world``."""
    return browsing(world.server.http_port, view, **options)


# Returns the texts whose contrast with what is behind them is below 4.5, the least of WCAG AA.
LOW_CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] > 0.99) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || node.closest(".unseen, .skip, noscript, title, thead") || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const ink = node.namespaceURI.includes("svg") ? parse(style.fill) : parse(style.color);
    const [a, b] = [light(ink), light(behind(node.closest("svg") ?? node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push(`${node.tagName} ${node.textContent.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return low;
}"""
