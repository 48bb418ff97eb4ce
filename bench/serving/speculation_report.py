"""Sums up speculation.json: adds its summary, draws speculation.svg, prints tables in Markdown.

Usage: speculation_report.py FOLDER [--into DOCUMENT]
FOLDER/speculation.json is of bench/serving/speculation. With --into, the tables replace what stands
between the two marks in DOCUMENT.
"""

import argparse
import collections
import json
import math
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'simulate'))
from line_picture import Bars, Panel, write_picture  # pylint: disable=wrong-import-position

BEGIN, END = '<!-- speculation: begin -->\n', '<!-- speculation: end -->\n'


class Cell:
    """All rounds of one draft, length, concurrency and temperature."""

    def __init__(self, runs):
        self.runs = sorted(runs, key=lambda run: run['round'])

    def total(self, key):
        return sum(run[key] for run in self.runs)

    def speeds(self):
        """Tokens/s by round."""
        return [run['tokens'] / run['seconds'] for run in self.runs]

    def speed(self):
        return statistics.median(self.speeds())

    def accepted_length(self):
        """Tokens of a step in which drafts are verified, the one behind them included."""
        draws = self.total('draws_with_drafts')
        return 1 + self.total('drafts_accepted') / draws if draws else None

    def row_of(self):
        tokens = self.total('tokens')
        draws = tokens - self.total('drafts_accepted')
        length = self.accepted_length()
        return {'tokens_per_s': round(self.speed(), 1),
                'tokens_per_s_lowest': round(min(self.speeds()), 1),
                'tokens_per_s_highest': round(max(self.speeds()), 1),
                'accepted_length': None if length is None else round(length, 3),
                'tokens_per_draw': round(tokens / draws, 3),
                'verify_rows_per_token': round((draws + self.total('drafts_verified')) / tokens, 3),
                'host_fetches_per_token': round(self.total('rows_fetched') / tokens, 2),
                'host_fetch_fraction': round(
                    self.total('rows_fetched') / max(1, self.total('rows_needed')), 4),
                'draft_cap': round(statistics.median(run['draft_cap'] for run in self.runs), 1),
                'running': min(run['running'] for run in self.runs)}


class Results:
    def __init__(self, runs):
        cells = collections.defaultdict(list)
        for run in runs:
            key = (run['draft'], run['length'], run['concurrency'], run['temperature'])
            cells[key].append(run)
        self.cells = {key: Cell(runs) for key, runs in cells.items()}
        self.plain_runs = [run for run in runs
                           if run['draft'] == 'none' and run['temperature'] == 0]
        self.drafts = list(dict.fromkeys(key[0] for key in self.cells if key[0] != 'none'))
        self.concurrencies = sorted({key[2] for key in self.cells if key[3] == 0})

    def lengths(self, draft):
        """The fixed ones, rising; the last is as many as the draft proposes."""
        return sorted({key[1] for key in self.cells if key[0] == draft and key[1] != 'auto'},
                      key=int)

    def greedy(self, draft, length, concurrency):
        return self.cells[draft, length, concurrency, 0]

    def plain(self, draft, concurrency):
        """As measured beside this draft."""
        return Cell([run for run in self.plain_runs
                     if run['beside'] == draft and run['concurrency'] == concurrency])

    def accepted_length(self, draft, is_greedy):
        """Of the full fixed length, over all concurrencies."""
        wanted = [cell for (name, length, _, temperature), cell in self.cells.items()
                  if name == draft and length == self.lengths(draft)[-1]
                  and (temperature == 0) == is_greedy]
        return Cell([run for cell in wanted for run in cell.runs]).accepted_length()


def ratio(cell, other):
    """Of the speeds of rounds that were measured beside each other: the median."""
    return statistics.median(a / b for a, b in zip(cell.speeds(), other.speeds()))


def adaptive_ratio(results, draft, concurrency, lengths):
    """To the faster one of no draft and these fixed lengths."""
    others = [results.plain(draft, concurrency)]
    others += [results.greedy(draft, length, concurrency) for length in lengths]
    return ratio(results.greedy(draft, 'auto', concurrency), max(others, key=Cell.speed))


def break_even(gains):
    """gains: {concurrency: fixed / plain}. Where it falls to 1, on a scale of doublings; None where
    it does not within what was measured."""
    points = sorted((math.log2(c), math.log2(gain)) for c, gain in gains.items())
    for (x, y), (next_x, next_y) in zip(points, points[1:]):
        if y >= 0 > next_y:
            return round(2 ** (x + (next_x - x) * y / (y - next_y)), 1)
    return None


def break_even_words(values):
    """For a table: where the gain does not cross 1, on which side of it everything is."""
    if values['break_even_concurrency'] is not None:
        return number(values['break_even_concurrency'], 1)
    gains = values['fixed_over_plain']
    if all(gain < 1 for gain in gains.values()):
        return f'below {min(gains)}'
    return f'above {max(gains)}' if all(gain >= 1 for gain in gains.values()) else 'not clear'


def rounded(value):
    return None if value is None else round(value, 3)


def summary_of_draft(results, draft):
    full = results.lengths(draft)[-1]
    gains = {c: ratio(results.greedy(draft, full, c), results.plain(draft, c))
             for c in results.concurrencies}
    to_full = {c: adaptive_ratio(results, draft, c, [full]) for c in results.concurrencies}
    to_any = {c: adaptive_ratio(results, draft, c, results.lengths(draft))
              for c in results.concurrencies}
    speeds = {c: {'plain': round(results.plain(draft, c).speed(), 1),
                  'fixed': round(results.greedy(draft, full, c).speed(), 1),
                  'adaptive': round(results.greedy(draft, 'auto', c).speed(), 1)}
              for c in results.concurrencies}
    return {'fixed_length': int(full),
            'accepted_length_greedy': rounded(results.accepted_length(draft, True)),
            'accepted_length_t1': rounded(results.accepted_length(draft, False)),
            'tokens_per_s': speeds,
            'fixed_over_plain': {c: round(gain, 3) for c, gain in gains.items()},
            'break_even_concurrency': break_even(gains),
            'adaptive_over_better': {c: round(value, 3) for c, value in to_full.items()},
            'worst_adaptive_ratio': round(min(to_full.values()), 3),
            'worst_adaptive_ratio_any_length': round(min(to_any.values()), 3)}


def summarise(results):
    summary = {draft: summary_of_draft(results, draft) for draft in results.drafts}
    ratios = [summary[draft]['worst_adaptive_ratio'] for draft in results.drafts]
    return {**summary, 'worst_adaptive_ratio': min(ratios, default=None)}


def rows_of(results):
    return [{'draft': draft, 'length': length, 'concurrency': concurrency,
             'temperature': temperature, **cell.row_of()}
            for (draft, length, concurrency, temperature), cell in results.cells.items()]


# ---- What is checked -----------------------------------------------------------------------------

def check(setup, results):
    """Stops where figures cannot be true."""
    for key, cell in results.cells.items():
        draws = cell.total('tokens') - cell.total('drafts_accepted')
        is_true = (cell.total('tokens') > 0 and draws > 0
                   and cell.total('drafts_accepted') <= cell.total('drafts_verified')
                   and cell.total('rows_fetched') <= cell.total('rows_needed')
                   and (key[0] != 'none' or cell.total('drafts_verified') == 0))
        if not is_true:
            raise SystemExit(f'{key}: impossible figures {cell.runs}')
    for draft in results.drafts:
        verified = sum(cell.total('drafts_verified') for key, cell in results.cells.items()
                       if key[0] == draft)
        if verified == 0:
            raise SystemExit(f'{draft}: no draft was verified')
    if not setup['greedy_outputs_equal']:
        raise SystemExit('greedy outputs depend on the draft')


# ---- Tables --------------------------------------------------------------------------------------

def table(head, rows):
    lines = ['| ' + ' | '.join(head) + ' |', '| ' + ' | '.join(['---'] * len(head)) + ' |']
    lines += ['| ' + ' | '.join(row) + ' |' for row in rows]
    return '\n'.join(lines) + '\n'


def number(value, digits=2):
    return '-' if value is None else f'{value:.{digits}f}'


def shares_accepted(results, draft):
    """Of the drafts verified at each place, how many were accepted: greedy, full fixed length."""
    verified, accepted = collections.Counter(), collections.Counter()
    for c in results.concurrencies:
        for run in results.greedy(draft, results.lengths(draft)[-1], c).runs:
            verified.update(dict(enumerate(run['verified_at'])))
            accepted.update(dict(enumerate(run['accepted_at'])))
    return ', '.join(f'{100 * accepted[i] / verified[i]:.0f}'
                     for i in sorted(verified) if verified[i])


def acceptance_table(results, summary):
    rows = [[draft, str(summary[draft]['fixed_length']),
             number(summary[draft]['accepted_length_greedy']),
             number(summary[draft]['accepted_length_t1']), shares_accepted(results, draft)]
            for draft in results.drafts]
    return table(['draft', 'length', 'accepted length, greedy', 'at temperature 1',
                  '% accepted by place, greedy'], rows)


def speed_table(results):
    rows = []
    for draft, length in dict.fromkeys(key[:2] for key in results.cells):
        cells = [results.greedy(draft, length, c).row_of() for c in results.concurrencies]
        rows.append([draft, length]
                    + [f'{cell["tokens_per_s"]:.0f}' for cell in cells]
                    + [', '.join(number(cell[key], digits) for cell in cells)
                       for key, digits in (('tokens_per_draw', 2), ('verify_rows_per_token', 2),
                                           ('host_fetches_per_token', 1))])
    return table(['draft', 'length'] + [f'tokens/s at {c}' for c in results.concurrencies]
                 + ['tokens per draw', 'verify rows per token', 'host fetches per token'], rows)


def ratio_table(results, summary):
    rows = []
    for draft in results.drafts:
        values = summary[draft]
        rows.append([f'{draft}, {values["fixed_length"]}']
                    + [number(values['fixed_over_plain'][c]) for c in results.concurrencies]
                    + [break_even_words(values)]
                    + [number(values['adaptive_over_better'][c]) for c in results.concurrencies]
                    + [number(values['worst_adaptive_ratio_any_length'])])
    return table(['draft, fixed length'] + [f'fixed / plain at {c}' for c in results.concurrencies]
                 + ['break-even']
                 + [f'adaptive / better at {c}' for c in results.concurrencies]
                 + ['worst to any length'], rows)


def rounds_words(results):
    counts = sorted({len(cell.runs) for cell in results.cells.values()})
    return f'{counts[0]} to {counts[-1]}' if len(counts) > 1 else f'{counts[0]}'


def tables(setup, results, summary):
    return (f'{setup["device"]}, demo model, device memory of '
            f'{setup["device_pool_bytes"] / 2**20:.0f} MiB, emulated link of '
            f'{setup["link_bytes_per_s"] / 1e6:.0f} MB/s, {setup["prompts"]} prompts of '
            f'{setup["prompt_tokens"]} tokens of held-out text, medians of {rounds_words(results)} '
            f'rounds.\n\n{acceptance_table(results, summary)}\n{speed_table(results)}\n'
            f'{ratio_table(results, summary)}')


def replace_marked(path, text):
    document = path.read_text(encoding='utf-8')
    before, _, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f'{path} lacks the marks {BEGIN.strip()} and {END.strip()}')
    path.write_text(before + BEGIN + text + END + after, encoding='utf-8')


# ---- Picture -------------------------------------------------------------------------------------

def draw(path, results, summary):
    def lines(which):
        return {'none': [(c, results.greedy('none', '0', c).speed())
                         for c in results.concurrencies],
                **{draft: [(c, summary[draft]['tokens_per_s'][c][which])
                           for c in results.concurrencies] for draft in results.drafts}}
    bars = [(f'{draft}, {words}', summary[draft][key] or 0) for draft in results.drafts
            for words, key in (('greedy', 'accepted_length_greedy'),
                               ('temperature 1', 'accepted_length_t1'))]
    panels = [Panel('length chosen by load', 'requests', 'tokens/s', lines('adaptive'),
                    results.concurrencies, True),
              Panel('fixed full length', 'requests', 'tokens/s', lines('fixed'),
                    results.concurrencies, True)]
    if bars:
        panels.append(Bars('accepted length', 'tokens of a step that verifies drafts', bars))
    write_picture(path, panels, 'demo model on the CPU, measured; the link is emulated')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('folder', type=pathlib.Path)
    parser.add_argument('--into', type=pathlib.Path)
    arguments = parser.parse_args()
    path = arguments.folder / 'speculation.json'
    measured = json.loads(path.read_text(encoding='utf-8'))
    results = Results(measured['runs'])
    check(measured['setup'], results)
    summary = summarise(results)
    runs = ',\n'.join('  ' + json.dumps(run) for run in measured['runs'])
    rows = ',\n'.join('  ' + json.dumps(row) for row in rows_of(results))
    path.write_text(f'{{"command": "sh bench/serving/speculation.sh",\n'
                    f' "summary": {json.dumps(summary, indent=1)},\n'
                    f' "setup": {json.dumps(measured["setup"], indent=1)},\n'
                    f' "rows": [\n{rows}\n ],\n "runs": [\n{runs}\n ]}}\n', encoding='utf-8')
    draw(arguments.folder / 'speculation.svg', results, summary)
    text = tables(measured['setup'], results, summary)
    print(text)
    if arguments.into:
        replace_marked(arguments.into, text)


if __name__ == '__main__':
    main()
