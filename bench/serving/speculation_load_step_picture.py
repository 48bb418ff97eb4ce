"""Draws speculation_load_step.csv: requests, verify rows, residency and tokens/s over time.

Usage: speculation_load_step_picture.py FOLDER
Reads FOLDER/speculation_load_step.csv, writes FOLDER/speculation_load_step.svg.
Needs matplotlib (bench/requirements.txt).
"""

import collections
import csv
import json
import sys

import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt

COLOURS = {'0': '#57534e', 'auto': '#1d4ed8'}
FIXED_COLOUR = '#b45309'
WINDOW_S = 0.5


def read_lengths(path):
    lengths = collections.OrderedDict()
    with open(path, encoding='utf-8') as file:
        for row in csv.DictReader(file):
            length = row.pop('length')
            lengths.setdefault(length, []).append({key: float(row[key]) for key in row})
    return lengths


def rates(samples):
    """[(seconds, tokens/s, verify rows per draw, host-fetch %)] of windows of WINDOW_S."""
    points, begin = [], samples[0]
    fractions = []
    for sample in samples[1:]:
        fractions.append(sample['fetch_fraction'])
        elapsed = sample['seconds'] - begin['seconds']
        if elapsed < WINDOW_S:
            continue
        tokens = sample['generated_tokens'] - begin['generated_tokens']
        verified = sample['verified'] - begin['verified']
        draws = tokens - (sample['accepted'] - begin['accepted'])
        points.append((sample['seconds'], tokens / elapsed,
                       1 + verified / draws if draws > 0 else None,
                       100 * sum(fractions) / len(fractions)))
        begin, fractions = sample, []
    return points


def draw(axes, samples, colour, name):
    seconds = [sample['seconds'] for sample in samples]
    axes[0].step(seconds, [sample['running'] for sample in samples], where='post', color=colour,
                 label=name)
    axes[2].step(seconds, [sample['row_chunks'] for sample in samples], where='post', color=colour)
    points = rates(samples)
    times = [point[0] for point in points]
    axes[1].plot(times, [point[2] for point in points], color=colour)
    axes[3].plot(times, [point[3] for point in points], color=colour)
    axes[4].plot(times, [point[1] for point in points], color=colour)


def main():
    folder = sys.argv[1]
    with open(f'{folder}/speculation_load_step.json', encoding='utf-8') as file:
        setup = json.load(file)
    figure, axes = plt.subplots(5, 1, sharex=True, figsize=(8, 10), constrained_layout=True)
    for length, samples in read_lengths(f'{folder}/speculation_load_step.csv').items():
        name = {'0': 'no draft', 'auto': 'length by load'}.get(length, f'length {length}')
        draw(axes, samples, COLOURS.get(length, FIXED_COLOUR), name)
    axes[0].set_ylabel('running requests')
    axes[0].legend()
    axes[1].set_ylabel('verify rows\nof a request and step')
    axes[1].set_ylim(bottom=0)
    axes[2].set_ylabel('chunks of rows')
    axes[3].set_ylabel('host-fetch %')
    axes[4].set_ylabel('output tokens/s')
    axes[4].set_xlabel('seconds')
    axes[0].set_title(f'Load that comes and goes, draft {setup["draft"]}: demo model on the CPU, '
                      'link emulated')
    plt.rcParams['svg.hashsalt'] = 'speculation_load_step'
    figure.savefig(f'{folder}/speculation_load_step.svg', metadata={'Date': None})


if __name__ == '__main__':
    main()
