"""Draws load_step.csv: requests, chunks of rows and fetched rows, step by step, two modes.

Usage: load_step_picture.py FOLDER      reads FOLDER/load_step.csv, writes FOLDER/load_step.svg
Needs matplotlib (bench/requirements.txt).
"""

import csv
import sys

import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt

COLOURS = {'fixed': '#b45309', 'adaptive': '#1d4ed8'}
SMOOTHED_STEPS = 10


def read_modes(path):
    modes = {}
    with open(path, encoding='utf-8') as file:
        for row in csv.DictReader(file):
            modes.setdefault(row['mode'], []).append(
                {key: float(value) for key, value in row.items() if key != 'mode'})
    return modes


def smoothed(values):
    means = []
    for i in range(len(values)):
        window = values[max(0, i - SMOOTHED_STEPS + 1):i + 1]
        means.append(sum(window) / len(window))
    return means


def draw(axes, samples, colour, mode):
    steps = [sample['step'] for sample in samples]
    axes[0].step(steps, [sample['running'] for sample in samples], color=colour, label=mode)
    axes[1].step(steps, [sample['row_chunks'] for sample in samples], color=colour)
    fractions = [100 * sample['fetch_fraction'] for sample in samples]
    axes[2].plot(steps, smoothed(fractions), color=colour)


def main():
    folder = sys.argv[1]
    figure, axes = plt.subplots(3, 1, sharex=True, figsize=(8, 6.5), constrained_layout=True)
    for mode, samples in read_modes(f'{folder}/load_step.csv').items():
        draw(axes, samples, COLOURS[mode], mode)
    axes[0].set_ylabel('running requests')
    axes[0].legend()
    axes[1].set_ylabel('chunks of rows')
    axes[2].set_ylabel(f'host-fetch %\n(mean of {SMOOTHED_STEPS} steps)')
    axes[2].set_xlabel('engine step')
    axes[0].set_title('Load that comes and goes: demo model on the CPU, link emulated')
    plt.rcParams['svg.hashsalt'] = 'load_step'
    figure.savefig(f'{folder}/load_step.svg', metadata={'Date': None})


if __name__ == '__main__':
    main()
