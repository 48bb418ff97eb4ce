"""Draws the trace suite's table: one panel of bars for every load and table.

Usage: trace_picture.py trace_suite.csv trace_suite.svg
"""

import csv
import html
import sys

PANEL_WIDTH, PANEL_HEIGHT = 430, 230
BARS_TOP, BARS_HEIGHT, BARS_LEFT = 40, 140, 46
COLUMNS = 3
COLOURS = ['#1d4ed8', '#60a5fa', '#f59e0b', '#a8a29e', '#047857']
TITLES = {'policies': 'policies', 'sharing': 'one cache for all requests, or one for each',
          'groups': 'index groups of one size, or of their own'}


def read_panels(path):
    """{(load, table): {multiple: {policy: percent}}}, in the order of the file."""
    panels = {}
    with open(path, encoding='utf-8') as file:
        for row in csv.DictReader(line for line in file if not line.startswith('#')):
            bars = panels.setdefault((row['load'], row['table']), {})
            percent = float(row['host_fetch_percent'])
            bars.setdefault(int(row['multiple']), {})[row['policy']] = percent
    return panels


def text(x, y, words, anchor='start', size=11):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
            f'{html.escape(words)}</text>')


def axis(highest):
    lines = []
    for part in (0, 0.5, 1):
        y = BARS_TOP + BARS_HEIGHT * (1 - part)
        lines.append(f'<path d="M{BARS_LEFT} {y:.1f} H{PANEL_WIDTH - 10}" stroke="#d6d3d1"/>')
        lines.append(text(BARS_LEFT - 5, y + 4, f'{highest * part:.3g} %', 'end', 10))
    return lines


def legend(policies):
    lines = []
    x = BARS_LEFT
    for i, policy in enumerate(policies):
        y = BARS_TOP + BARS_HEIGHT + 38
        lines.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{COLOURS[i]}"/>')
        lines.append(text(x + 14, y, policy))
        x += 24 + 6.4 * len(policy)
    return lines


def panel(load, table, bars):
    policies = list(next(iter(bars.values())))
    highest = max(max(group.values()) for group in bars.values()) or 1
    lines = [text(BARS_LEFT, 22, f'{load}: {TITLES[table]}', size=13)] + axis(highest)
    group_width = (PANEL_WIDTH - BARS_LEFT - 10) / len(bars)
    bar_width = group_width * 0.84 / len(policies)
    for column, (multiple, percents) in enumerate(bars.items()):
        left = BARS_LEFT + group_width * (column + 0.08)
        for i, policy in enumerate(policies):
            height = BARS_HEIGHT * percents[policy] / highest
            x, y = left + i * bar_width, BARS_TOP + BARS_HEIGHT - height
            lines.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar_width * 0.9:.1f}" '
                         f'height="{height:.1f}" fill="{COLOURS[i]}"/>')
            lines.append(text(x + bar_width * 0.45, y - 3, f'{percents[policy]:.1f}', 'middle', 9))
        lines.append(text(left + group_width * 0.42, BARS_TOP + BARS_HEIGHT + 16,
                          f'{multiple}x top-k rows', 'middle'))
    return lines + legend(policies)


def picture(panels):
    rows = -(-len(panels) // COLUMNS)
    width, height = PANEL_WIDTH * COLUMNS, PANEL_HEIGHT * rows + 30
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             f'font-family="Helvetica, Arial, sans-serif" fill="#1c1917">',
             f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
             text(BARS_LEFT, 20, 'Rows fetched from the host, percent of rows needed', size=14)]
    for i, ((load, table), bars) in enumerate(panels.items()):
        x, y = PANEL_WIDTH * (i % COLUMNS), PANEL_HEIGHT * (i // COLUMNS) + 30
        lines += [f'<g transform="translate({x} {y})">', *panel(load, table, bars), '</g>']
    return '\n'.join(lines + ['</svg>', ''])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[2], 'w', encoding='utf-8') as file:
        file.write(picture(read_panels(sys.argv[1])))


if __name__ == '__main__':
    main()
