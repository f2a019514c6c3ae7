"""Pictures of the site and the README as a browser shows them: `python docs/look.py [PAGE ...]`.

Builds the site, serves it on loopback, and has Chromium save pictures of pages in `.look`, as wide as a laptop's screen
and as a telephone's, and one page in the dark. The README is rendered much as GitHub does it. Look at the pictures:
nothing is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import markdown
from mkdocs.commands.build import build
from mkdocs.config import load_config

__all__ = ["find_browser", "main", "render_readme"]

ROOT = Path(__file__).resolve().parents[1]
LOOK = ROOT / ".look"
PAGES = {
    "home": "site/",
    "readme": "readme/",
    "tutorial": "site/tutorials/first-dataset/",
    "embeddings": "site/how-to/embeddings/",
    "pandas": "site/how-to/use-pandas/",
    "come-from-petastorm": "site/how-to/come-from-petastorm/",
    "reference": "site/reference/reading-and-writing/",
    "benchmarks": "site/explanation/benchmarks/",
}
SIZES = {"1366": (1366, 2600), "390": (390, 2600)}
"""Pixels; the height is that of some screens."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Nothing of the user's, nothing from the network.
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=4000"),
)

# As wide as GitHub's page, with tables that scroll.
README_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>README</title>
<meta name="viewport" content="width=device-width"><style>
body {{ font: 16px/1.5 "DejaVu Sans", sans-serif; max-width: 1012px; margin: 0 auto; padding: 16px; }}
pre {{ background: #f6f8fa; padding: 16px; overflow: auto; font-size: 85%; }} img {{ max-width: 100%; }}
table {{ display: block; overflow: auto; border-collapse: collapse; font-size: 90%; }}
td, th {{ border: 1px solid #d1d9e0; padding: 6px 13px; }}
</style><body>{}</body></html>"""


def main() -> int:
    """Save the pictures, and say where."""
    parser = argparse.ArgumentParser(prog="python docs/look.py", description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(PAGES)}; none is all")
    asked = parser.parse_args()
    unknown = set(asked.pages) - set(PAGES)
    if unknown:
        parser.error(f"there is no page {', '.join(sorted(unknown))}; there are {', '.join(PAGES)}")
    browser = find_browser()
    if browser is None:
        print(
            "look: there is no Chromium on PATH. Debian and Ubuntu have it: apt install chromium; Chrome will do, too; "
            "or name one: CHROMIUM=/path/to/chromium make look",
            file=sys.stderr,
        )
        return 1
    _build()
    pages = asked.pages or list(PAGES)
    with _served(LOOK) as address, tempfile.TemporaryDirectory() as profile:
        for page in pages:
            for name, size in SIZES.items():
                _shoot(browser, profile, f"{address}/{PAGES[page]}", LOOK / f"{page}-{name}.png", size)
        dark = LOOK / f"{pages[0]}-dark.png"
        _shoot(browser, profile, f"{address}/{PAGES[pages[0]]}", dark, SIZES["1366"], dark=True)
    print(f"look: {len(pages) * len(SIZES) + 1} pictures in {LOOK.relative_to(ROOT)}")
    return 0


def find_browser() -> str | None:
    """Chromium or Chrome: what `CHROMIUM` names, or the first on PATH."""
    named = os.environ.get("CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, BROWSERS)), None)


def render_readme(text: str) -> str:
    """A page of HTML, whose links and pictures are relative to the root of the clone.

    Example:
        >>> "<h1>petastore</h1>" in render_readme("# petastore")
        True
    """
    return README_PAGE.format(markdown.markdown(text, extensions=["tables", "fenced_code"]))


def _build() -> None:
    shutil.rmtree(LOOK, ignore_errors=True)
    readme = LOOK / "readme"
    readme.mkdir(parents=True)
    page = render_readme((ROOT / "README.md").read_text(encoding="utf-8"))
    (readme / "index.html").write_text(page, encoding="utf-8")
    (readme / "docs").symlink_to(ROOT / "docs")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(LOOK / "site")))


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The address of a folder on loopback, while the block runs."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nobody wants to know."""


def _shoot(browser: str, profile: str, url: str, to: Path, size: tuple[int, int], *, dark: bool = False) -> None:
    options = [*OPTIONS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", f"--screenshot={to}"]
    options += ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run(
        [browser, *options, url], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if not to.is_file():
        sys.exit(f"look: {browser} made no picture of {url}:\n{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
