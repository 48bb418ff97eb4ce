"""Line and bar charts as SVG, without any library."""

import html

PANEL_WIDTH, PANEL_HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 46, 46
NAME_WIDTH = 92
COLOURS = ['#1d4ed8', '#f59e0b', '#047857', '#a21caf', '#57534e', '#dc2626']


def text(x, y, words, anchor='middle', size=11):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
            f'{html.escape(str(words))}</text>')


class Panel:
    """One chart. lines: {name: [(x, y)]}; ticks: the x values to mark; x positions are the ranks of
    the ticks when is_ranked, else proportional."""

    def __init__(self, title, x_name, y_name, lines, ticks=None, is_ranked=False):
        self.title, self.x_name, self.y_name = title, x_name, y_name
        self.lines, self.is_ranked = lines, is_ranked
        xs = sorted({x for points in lines.values() for x, _ in points})
        self.ticks = ticks or xs
        self.first, self.last = min(xs), max(xs)
        self.highest = max(y for points in lines.values() for _, y in points) * 1.05 or 1

    def x_of(self, x):
        width = PANEL_WIDTH - LEFT - RIGHT
        if self.is_ranked:
            return LEFT + width * self.ticks.index(x) / max(1, len(self.ticks) - 1)
        return LEFT + width * (x - self.first) / ((self.last - self.first) or 1)

    def y_of(self, y):
        return PANEL_HEIGHT - BOTTOM - (PANEL_HEIGHT - TOP - BOTTOM) * y / self.highest

    def draw(self):
        parts = [text(PANEL_WIDTH / 2, 16, f'{self.title}, {self.y_name}', size=13),
                 text(PANEL_WIDTH / 2, PANEL_HEIGHT - 8, self.x_name)]
        for share in (0, 0.25, 0.5, 0.75, 1):
            y, value = self.y_of(self.highest * share), self.highest * share
            words = f'{value:.0f}' if self.highest >= 100 else f'{value:.3g}'
            parts.append(f'<path d="M{LEFT} {y:.1f} H{PANEL_WIDTH - RIGHT}" stroke="#d6d3d1"/>')
            parts.append(text(LEFT - 6, y + 4, words, 'end', 10))
        for x in self.ticks:
            parts.append(text(self.x_of(x), PANEL_HEIGHT - BOTTOM + 15, f'{x:g}', size=10))
        for number, (name, points) in enumerate(self.lines.items()):
            colour = COLOURS[number % len(COLOURS)]
            path = ' '.join(f'{self.x_of(x):.1f},{self.y_of(y):.1f}' for x, y in points)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                         f'stroke-width="1.8"/>')
            parts.append(f'<g fill="{colour}">'
                         + text(LEFT + NAME_WIDTH * number, 34, name, 'start') + '</g>')
        return '\n'.join(parts)


class Bars:
    """One chart of lying bars, one below the other. bars: [(name, value)]."""

    NAMES, VALUES = 190, 60

    def __init__(self, title, y_name, bars):
        self.title, self.y_name, self.bars = title, y_name, bars
        self.highest = max(value for _, value in bars) or 1

    def draw(self):
        parts = [text(PANEL_WIDTH / 2, 16, f'{self.title}, {self.y_name}', size=13)]
        step = (PANEL_HEIGHT - TOP) / len(self.bars)
        room = PANEL_WIDTH - self.NAMES - self.VALUES
        for number, (name, value) in enumerate(self.bars):
            y = TOP - 12 + step * number
            width = room * value / self.highest
            words = f'{value:.0f}' if value >= 100 else f'{value:.3g}'
            parts.append(text(self.NAMES - 6, y + step / 2 + 4, name, 'end'))
            parts.append(f'<rect x="{self.NAMES}" y="{y + step * 0.15:.1f}" width="{width:.1f}" '
                         f'height="{step * 0.7:.1f}" fill="{COLOURS[0]}"/>')
            parts.append(text(self.NAMES + width + 5, y + step / 2 + 4, words, 'start'))
        return '\n'.join(parts)


def write_picture(path, panels, caption):
    """The panels (Panel or Bars) beside each other, the caption below them."""
    width, height = PANEL_WIDTH * len(panels), PANEL_HEIGHT + 24
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'font-family="sans-serif">', f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({number * PANEL_WIDTH} 0)">{panel.draw()}</g>')
    parts += [text(width / 2, height - 8, caption, size=11), '</svg>', '']
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(parts))
