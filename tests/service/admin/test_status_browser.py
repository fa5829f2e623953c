"""The status page in a real browser: what it shows, how fast, to whom, and that it needs neither mouse nor colours."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser_world import LOW_CONTRAST, browsing, viewed
from cli_world import Served
from page_world import page_of, page_world, settled
from playwright.async_api import Page, expect
from secure_world import SecureWorld
from service_world import MERGE, RawPublisher, World, ins, stable

from lmerge.service.choices import AccessRole
from lmerge.service.security import tokens

PUBLISH, SUBSCRIBE, STATUS, ADMIN = AccessRole
STEADY = Path(__file__).parents[2] / "worlds" / "steady_app.py"
MARKUP = "<img src=x onerror=window.hacked=1>"
SHOWN_S_MAX = 1.0
OF_FLIGHTS = f"/merge/{MERGE}"


async def busy(world: World, *names: str) -> list[RawPublisher]:
    """Attach inputs that have delivered the same."""
    publishers = [await world.publisher(name) for name in names]
    for publisher in publishers:
        await publisher.merged(*(ins(f"{at}", at, at + 1) for at in range(50)), stable(60))
    return publishers


def row_of(page: Page, name: str) -> Any:
    return page.locator(".inputs tbody tr", has=page.get_by_role("rowheader", name=name, exact=True))


@contextmanager
def replicas(target: str, *names: str) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run replicas as processes of their own."""
    running = {name: subprocess.Popen([sys.executable, str(STEADY), target, name]) for name in names}
    try:
        yield running
    finally:
        for process in running.values():
            process.kill()
            process.wait()


# What it shows.


async def test_a_replica_that_is_killed_is_shown_within_a_second(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        with replicas(served.target, "a", "b", "c", "d") as running:
            async with browsing(served.ports["http_port"], OF_FLIGHTS) as page:
                await expect(page.locator(".inputs tr[data-state=joined]")).to_have_count(4)
                await expect(page.get_by_text("Survives 3 losses")).to_be_visible()
                shown_s = []
                for name in "bcd":
                    killed_s = time.monotonic()
                    running[name].kill()
                    await expect(row_of(page, name)).to_have_attribute("data-state", "died")
                    shown_s.append(time.monotonic() - killed_s)
                    await expect(page.locator("#announcer")).to_contain_text(f"{name} died")
                await expect(page.get_by_text("Not redundant")).to_be_visible()
                died = page.locator(".timeline li[data-kind=died] .what")
                assert await died.all_inner_texts() == ["d died", "c died", "b died"]
                assert await page.locator(".marks [data-tone=bad]").count() == 3 * 3, "each chart marks each death"
        assert min(shown_s) < SHOWN_S_MAX, f"a death was shown after {shown_s}"  # others take what the machine lacks
    finally:
        served.stop()


async def test_the_list_shows_merges_and_the_worst_first() -> None:
    async with page_world(merges=("idle",)) as world, viewed(world) as page:
        await busy(world, "a", "b")
        await expect(page.locator("tbody tr")).to_have_count(2)
        assert [text.split("\n")[0] for text in await page.locator("tbody th").all_inner_texts()] == ["idle", MERGE]
        await expect(page.get_by_text("Survives 1 loss")).to_be_visible()
        await expect(page.get_by_text("2 merges, 1 with a problem")).to_be_visible()
        await page.get_by_role("searchbox", name="Filter by name").fill("FLI")
        await expect(page.locator("tbody tr")).to_have_count(1)


async def test_a_merge_shows_who_wins_what_differs_and_who_reads() -> None:
    async with page_world() as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await world.subscriber(name="board")
        async with viewed(world, OF_FLIGHTS) as page:
            await expect(page.locator(".inputs tbody tr")).to_have_count(2)
            await a.merged(ins("from a", 1, 5))
            await b.merged(ins("from b", 1, 5))
            for publisher in (a, b):
                await publisher.merged(stable(20))
            await expect(page.locator(".interval code")).to_have_text(["from a", "from b"])
            await expect(page.get_by_role("table", name="Readers")).to_contain_text("board")
            await expect(row_of(page, "a")).to_contain_text("%")
            await expect(page.locator(".legend")).to_contain_text("a")
            assert await page.locator("polygon.band").count() >= 2


async def test_names_and_payloads_are_shown_as_text() -> None:
    async with page_world() as world:
        named = f"m {MARKUP}"
        a, b = [await world.publisher(f"{name} {MARKUP}", merge=named) for name in "ab"]
        await world.subscriber(named, name=f"reader {MARKUP}")
        async with viewed(world) as page:
            await page.get_by_role("link", name=named).click()
            await expect(page.get_by_role("heading", level=1)).to_have_text(named)
            await a.merged(ins(f"payload {MARKUP}", 1, 5))
            for publisher in (a, b):
                await publisher.merged(stable(20))
            await expect(page.locator(".interval code")).to_have_text([f"payload {MARKUP}"])
            await expect(page.get_by_role("table", name="Readers")).to_contain_text(f"reader {MARKUP}")
            b.call.cancel()
            await expect(page.locator("#announcer")).to_contain_text(f"b {MARKUP} died")
            assert await page.locator("main img").count() == 0
            assert await page.evaluate("window.hacked") is None


async def test_a_merge_that_is_not_there_appears_when_it_comes() -> None:
    async with page_world() as world, viewed(world, "/merge/later") as page:
        await expect(page.get_by_text("There is no merge of this name")).to_be_visible()
        await world.publisher("a", merge="later")
        await expect(page.locator(".inputs tbody tr")).to_have_count(1)
        await expect(page.get_by_text("There is no merge of this name")).to_be_hidden()


# Whether it is live.


async def test_a_page_that_is_not_live_shows_it_and_comes_back_by_itself() -> None:
    world = page_world()
    async with world:
        await busy(world, "a", "b")
        port = world.server.http_port
        async with viewed(world, OF_FLIGHTS) as page:
            await expect(page.locator("#live")).to_have_text("Live")
            await world.server.stop(0.0)
            await expect(page.locator("#live")).to_contain_text("Not live: last data")
            await expect(page.locator("main")).to_have_attribute("data-stale", "true")
            async with page_world(http_port=port) as again:
                await expect(page.locator("#live")).to_have_text("Live")
                await expect(page.get_by_text("There is no merge of this name")).to_be_visible()
                await busy(again, "a", "c")
                await expect(page.locator(".inputs tbody th")).to_have_text(["a", "c"])


async def test_a_server_that_hangs_is_not_live() -> None:
    async with page_world() as world, viewed(world) as page:
        await expect(page.locator("#live")).to_have_text("Live")
        feed = page_of(world)._feed
        await feed.stop()
        await expect(page.locator("#live")).to_contain_text("Not live")
        await expect(page.locator("#why")).to_contain_text("nothing has come for")


async def test_a_page_above_the_limit_shows_why_and_opens_when_there_is_room() -> None:
    async with page_world(page_viewers_max=1) as world, viewed(world) as first:
        await expect(first.locator("#live")).to_have_text("Live")
        async with viewed(world) as second:
            await expect(second.locator("#why")).to_contain_text("1 status pages are open on this server")
            await first.close()
            await settled(lambda: page_of(world)._feed.viewers == 0)
            await expect(second.locator("#live")).to_have_text("Live")


async def test_a_token_opens_the_page_and_closes_it_when_it_is_revoked(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, http_port=0, page_interval_s=0.05) as world:
        watcher = world.token("watcher", [STATUS], ["*"])
        async with viewed(world, scheme="https", ignore_https_errors=True) as page:
            door = page.get_by_role("alert")
            await expect(door).to_contain_text("no credentials came")
            await page.get_by_label("Token").fill("lmt_00000000_wrong")
            await page.keyboard.press("Enter")
            await expect(door).not_to_contain_text("no credentials came")
            await page.get_by_label("Token").fill(watcher)
            await page.get_by_role("button", name="Open").click()
            await expect(page.locator("#live")).to_have_text("Live")
            await expect(door).to_have_count(0)
            assert watcher not in page.url
            tokens.revoke(world.access_path, "watcher")
            await expect(door).to_contain_text("revoked")


# For whom it is.


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_both_themes_have_enough_contrast(theme: str) -> None:
    async with page_world() as world:
        a, b, _ = await busy(world, "a", "b", "c")
        await a.merged(ins("one", 61, 62), stable(80))
        await b.leave()
        async with viewed(world, OF_FLIGHTS, color_scheme=theme) as page:
            await expect(row_of(page, "b")).to_have_attribute("data-state", "left")
            ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(int(part) for part in ground[4:-1].split(",")) > 380) is (theme == "light")
            assert await page.evaluate(LOW_CONTRAST) == []
            await page.get_by_role("link", name="All merges").click()
            await expect(page.locator("tbody tr")).to_have_count(1)
            assert await page.evaluate(LOW_CONTRAST) == []


@pytest.mark.parametrize("width", [320, 360, 768, 1920])
async def test_no_width_needs_a_horizontal_scroll(width: int) -> None:
    long = "n" * 190
    async with page_world() as world:
        for name in ("a", "b", long):
            publisher = await world.publisher(name, merge=long)
            await publisher.merged(ins("x" * 500 + name, 1, 5), ins("y", 6, 1_795_000_000_000_000))
            await publisher.merged(stable(1_794_999_999_000_000))
        await world.subscriber(long, name=long)
        async with viewed(world, width=width, height=740) as page:
            await expect(page.locator("tbody tr")).to_have_count(1)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            await page.get_by_role("link", name=long).click()
            await expect(page.locator(".inputs tbody tr")).to_have_count(3)
            await expect(page.locator(".interval").first).to_be_visible()
            await page.get_by_role("button", name="Show as a table").click()
            assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_everything_can_be_done_with_the_keyboard() -> None:
    async with page_world() as world:
        await busy(world, "a", "b")
        feed = page_of(world)._feed
        await settled(lambda: MERGE in feed.histories and feed.histories[MERGE].count > 5)
        async with viewed(world) as page:
            await expect(page.locator("tbody tr")).to_have_count(1)
            keys = page.keyboard
            await keys.press("Tab")
            await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
            await keys.press("Enter")
            await expect(page.locator("main")).to_be_focused()
            for _ in range(2):  # the filter, then the merge
                await keys.press("Tab")
            await expect(page.get_by_role("link", name=MERGE)).to_be_focused()
            await keys.press("Enter")
            await expect(page.get_by_role("heading", level=1, name=MERGE)).to_be_focused()
            assert await page.title() == f"{MERGE} · lmerge"
            await expect(page.locator(".inputs tbody tr")).to_have_count(2)
            await keys.press("Tab")
            await expect(page.get_by_role("button", name="Show as a table")).to_be_focused()
            await keys.press("Space")
            await expect(page.get_by_role("region", name="Samples as a table")).to_be_visible()
            await keys.press("Tab")
            slider = page.get_by_role("slider", name="Who won: moment")
            await expect(slider).to_be_focused()
            await keys.press("Home")
            await expect(slider).to_have_attribute("aria-valuenow", "0")
            await keys.press("ArrowRight")
            await expect(slider).to_have_attribute("aria-valuenow", "1")
            chosen = await slider.get_attribute("aria-valuetext")
            pause = page.get_by_role("slider", name="Longest pause of the output: moment")
            await expect(pause).to_have_attribute("aria-valuenow", "1")
            assert chosen is not None
            assert chosen[:2].isdigit()
            await page.go_back()
            await expect(page.get_by_role("heading", level=1, name="Merges")).to_be_focused()


async def test_a_screen_reader_finds_headings_tables_and_names(tmp_path: Path) -> None:
    async with page_world() as world:
        await busy(world, "a", "b")
        async with viewed(world, OF_FLIGHTS, width=360) as page:
            await expect(page.locator(".inputs tbody tr")).to_have_count(2)
            seen = await page.locator("body").aria_snapshot()
            for part in (
                f'heading "{MERGE}" [level=1]',
                'heading "Inputs" [level=2]',
                'table "Inputs"',
                'rowheader "a"',
                'cell "joined"',
                'columnheader "Behind"',
                'slider "Who won: moment"',
                'list "Timeline, newest first"',
                'navigation "Breadcrumb"',
                "status: Live",
            ):
                assert part in seen, f"{part} is not in\n{seen}"
            unnamed = await page.evaluate(
                "[...document.querySelectorAll('a, button, input, [role=slider], [role=region]')]"
                ".filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length))"
                ".map((one) => one.outerHTML)"
            )
            assert unnamed == []
