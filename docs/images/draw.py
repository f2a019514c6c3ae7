"""Draw the pictures of the documentation as SVG: `python docs/images/draw.py` writes them beside this file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path

COLORS = ("#4C78A8", "#F58518", "#54A24B", "#E45756", "#72B7B2", "#B279A2", "#EECA3B")
INK, GRAY, PAPER, LINE = "#1f2933", "#52606d", "#fbfbfa", "#cbd2d9"


class Picture:
    """Collects the shapes of one SVG picture; coordinates are pixels from the top left."""

    def __init__(self, width: int, height: int, title: str, description: str) -> None:
        self.shapes = [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                f'width="{width}" height="{height}" '
                f'font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif" font-size="26" fill="{INK}" '
                'role="img" aria-labelledby="title about">'
            ),
            f'<title id="title">{escape(title)}</title><desc id="about">{escape(description)}</desc>',
            (
                '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="5" markerHeight="5" '
                f'orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{GRAY}"/></marker></defs>'
            ),
            f'<rect width="{width}" height="{height}" rx="18" fill="{PAPER}"/>',
        ]

    def box(self, x: int, y: int, width: int, height: int, lines: str = "", fill: str = "#fff", ink: str = INK) -> None:
        """Draw a rectangle with lines of text in its middle."""
        border = LINE if fill == "#fff" else fill
        self.shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{border}"/>'
        )
        texts = lines.split("\n") if lines else []
        for number, line in enumerate(texts):
            at = y + height / 2 + 9 + 32 * (number - (len(texts) - 1) / 2)
            self.text(x + width // 2, at, line, anchor="middle", ink=ink)

    def text(self, x: float, y: float, line: str, *, anchor: str = "start", ink: str = INK, bold: bool = False) -> None:
        """Write one line; `x` is where the anchor stands, `y` the base line."""
        weight = ' font-weight="bold"' if bold else ""
        self.shapes.append(f'<text x="{x}" y="{y:g}" text-anchor="{anchor}" fill="{ink}"{weight}>{escape(line)}</text>')

    def arrow(self, *points: tuple[int, int]) -> None:
        """Draw a line through points with a tip at the last one."""
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        self.shapes.append(f'<path d="{path}" fill="none" stroke="{GRAY}" stroke-width="3" marker-end="url(#tip)"/>')

    def cells(self, x: int, y: int, labels: Sequence[str], fills: Iterable[str], *, width: int = 44) -> None:
        """Draw a row of small labelled cells."""
        for number, (label, fill) in enumerate(zip(labels, fills, strict=True)):
            self.box(x + number * (width + 4), y, width, 40, label, fill, "#fff" if fill in COLORS[:6] else INK)

    def svg(self) -> str:
        """Return the picture as a document."""
        return "\n".join([*self.shapes, "</svg>", ""])


def find_the_bottleneck() -> Picture:
    """Draw the stages that a diagnosis names, and what to change for each."""
    picture = Picture(
        1100, 620, "Find the bottleneck", "A diagnosis names the stage that training waits for, with its remedy."
    )
    picture.box(30, 24, 380, 84, "loader.diagnosis()", "#fff")
    picture.arrow((220, 108), (220, 168))
    picture.arrow((410, 66), (480, 66))
    picture.text(240, 146, "waits < 5 %", ink=GRAY)
    picture.text(500, 76, "waits ≥ 5 %, mostly for:", ink=GRAY)
    picture.box(30, 170, 380, 110, "The input is not\nthe bottleneck", COLORS[2], "#fff")
    picture.text(46, 326, "Profile the model.")
    for number, (stage, remedy) in enumerate((
        ("storage", "cache on local disk"),
        ("decoding", "smaller images, fewer columns"),
        ("transform", 'takes="columns", or processes'),
        ("assembly", "larger batches, no collate_fn"),
        ("copy", "smaller types, such as uint8"),
    )):  # fmt: skip
        y = 110 + number * 98
        picture.arrow((455, 66), (455, y + 37), (480, y + 37))
        picture.box(490, y, 190, 74, stage, COLORS[1], "#fff")
        picture.text(700, y + 46, remedy)
    return picture


def last_batch() -> Picture:
    """Draw the last global batch of 11 rows over two ranks for each policy."""
    picture = Picture(
        1000,
        520,
        "The last global batch",
        "Eleven rows over two ranks in batches of two, by last_batch.",
    )
    picture.text(30, 52, "11 rows, 2 ranks, batches of 2", bold=True)
    for x, title in ((250, "rank 0"), (620, "rank 1")):
        picture.text(x, 100, title, bold=True)
    policies: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
        ("even", "each row once", ("0 1", "4 5", "8"), ("2 3", "6 7", "9 10")),
        ("drop", "3 rows dropped", ("0 1", "4 5"), ("2 3", "6 7")),
        ("pad", "repeats marked", ("0 1", "4 5", "8 9"), ("2 3", "6 7", "10 ×")),
        ("wrap", "row 0 repeated", ("0 1", "4 5", "8 9"), ("2 3", "6 7", "10 0")),
    )
    for number, (name, remark, *ranks) in enumerate(policies):
        y = 122 + number * 98
        picture.text(30, y + 28, f'"{name}"', bold=True)
        picture.text(30, y + 62, remark, ink=GRAY)
        for x, batches in zip((250, 620), ranks, strict=True):
            for step, rows in enumerate(batches):
                is_last = step == 2
                picture.box(x + step * 112, y, 104, 62, rows, COLORS[1] if is_last else COLORS[0], "#fff")
    return picture


def resume() -> Picture:
    """Draw an epoch that two ranks begin and three ranks finish."""
    picture = Picture(
        1000, 420, "Resume mid-epoch", "Two ranks read until step 20; from its state three ranks read the rest."
    )
    picture.text(30, 52, "One epoch, one order", bold=True)
    picture.box(30, 76, 940, 46, "", LINE)
    picture.box(30, 76, 400, 46, "20 steps done", COLORS[0], "#fff")
    picture.box(430, 76, 540, 46, "the rest", COLORS[2], "#fff")
    picture.arrow((430, 200), (430, 128))
    picture.text(430, 232, "state_dict(): < 400 bytes", anchor="middle")
    for rank in range(2):
        picture.box(30, 262 + rank * 52, 330, 44, f"rank {rank} of 2", COLORS[0], "#fff")
    for rank in range(3):
        picture.box(500, 252 + rank * 52, 470, 44, f"rank {rank} of 3", COLORS[2], "#fff")
    picture.text(30, 396, "stopped", ink=GRAY)
    return picture


def shuffling() -> Picture:
    """Draw how rows of several row groups come into one batch."""
    picture = Picture(
        1000,
        470,
        "Shuffling in bounded memory",
        "Row groups are permuted, some are open at a time, batches take rows of all.",
    )
    for x, title, remark in (
        (30, "row groups", "in file order"),
        (330, "permuted", "by seed and epoch"),
        (630, "interleaved", "3 in memory at a time"),
    ):
        picture.text(x, 52, title, bold=True)
        picture.text(x, 84, remark, ink=GRAY)
    order = (4, 1, 5, 0, 3, 2)
    for number in range(6):
        y = 112 + number * 54
        picture.cells(30, y, [""] * 4, [COLORS[number]] * 4)
        picture.cells(330, y, [""] * 4, [COLORS[order[number]]] * 4)
    picture.arrow((236, 270), (316, 270))
    picture.arrow((536, 270), (616, 270))
    batches = ("415141", "514415", "032203", "320023")
    for number, batch in enumerate(batches):
        picture.cells(630, 130 + number * 78, [""] * 6, [COLORS[int(group)] for group in batch])
    return picture


def windows() -> Picture:
    """Draw windows of three rows that cross the border between two row groups."""
    picture = Picture(
        1000, 330, "Windows of rows", "Windows of three consecutive rows, also across the border of row groups."
    )
    picture.text(30, 52, "NGram of 3 rows, sorted by time", bold=True)
    picture.cells(30, 80, [str(row) for row in range(5)], [COLORS[0]] * 5, width=80)
    picture.cells(474, 80, [str(row) for row in range(5, 10)], [COLORS[1]] * 5, width=80)
    for number, first in enumerate((0, 1, 3, 4)):
        x = 30 + first * 84 + (24 if first > 4 else 0)
        last = first + 2
        end = 30 + last * 84 + 80 + (24 if last > 4 else 0)
        picture.box(
            x, 140 + number * 44, end - x, 36, f"{first} – {last}", COLORS[2] if last < 5 else COLORS[5], "#fff"
        )
    picture.text(620, 220, "windows cross row groups,", ink=GRAY)
    picture.text(620, 254, "files too", ink=GRAY)
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    "find-the-bottleneck": find_the_bottleneck,
    "last-batch": last_batch,
    "resume": resume,
    "shuffling": shuffling,
    "windows": windows,
}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        Path(__file__).with_name(f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
