"""The experiments of docs/RESULTS.md. All of it is simulated.

Usage: experiments.py NAME... with names of EXPERIMENTS or `all`. Each writes
docs/results/NAME.json, .csv and, where there is something to see, .svg.
"""

import csv
import json
import sys

from line_picture import Bars, Panel, write_picture
from points import AUTO_STEPS, CONFIGURATIONS, ROOT, glm_point, run_point

RESULTS = ROOT / 'docs/results'
GRID = [1, 8, 16, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512]
# Configurations that verify as many drafts in every step, or none.
FIXED_LENGTHS = [name for name in CONFIGURATIONS if not name.endswith('+auto')]
AUTO_GRID = [8, 16, 32, 64, 128, 192, 256, 384]
# From here on resident configurations queue: more offered requests change nothing.
RESIDENT_QUEUES_AT = 96
CAPTION = ('simulated: GLM-5.3, 8 x B200, 100K context, costs fitted to published throughput '
           '(docs/RESULTS.md)')
# The grid from which the published ratios follow, as far as that can be told from them.
DOUBLING_GRID = [8, 16, 32, 64, 128, 256]
BOUNDS_MS = list(range(16, 33))
# Where the article's own points lie.
ARTICLE_BOUNDS_MS = range(20, 27)


def grid_point(configuration, concurrency):
    is_resident = configuration.startswith('resident')
    measured = min(concurrency, RESIDENT_QUEUES_AT) if is_resident else concurrency
    return glm_point(configuration, measured)


def row_of(report, **more):
    """What a table says of a run."""
    return {**more,
            'tokens_per_s_per_gpu': round(report['output_tokens_per_s_per_gpu'], 1),
            'tpot_mean_ms': round(report['tpot_mean_s'] * 1e3, 2),
            'tpot_p99_ms': round(report['tpot_p99_s'] * 1e3, 2),
            'step_ms': round(report['step_time_s'] * 1e3, 2),
            'host_fetch_fraction': round(report['host_fetch_fraction'], 5),
            'missed_per_selected': round(report['missed_per_selected'], 5),
            'fetched_rows_per_step': round(report['fetched_rows_per_step']),
            'acceptance_length': round(report['acceptance_length'], 3),
            'verified_drafts': round(report['verified_drafts'], 3),
            'draft_cap': report['draft_cap'],
            'running_on_rank': report['max_running'],
            'rows_per_request': round(report['rows_per_request']),
            'steps': report['steps'],
            'cpu_s': report['cpu_s']}


def assumptions(report):
    """What identifies the run behind a result."""
    config = report['config']
    keys = [key for key in config if not key.startswith(('run.measured', 'run.warmup'))]
    return {'config': {key: config[key] for key in keys}, 'memory': report['memory']}


def write_result(name, summary, rows, report, published):
    result = {'simulated': True, 'command': f'sh bench/simulate/run.sh {name}',
              'summary': summary, 'published': published, 'assumptions': assumptions(report),
              'rows': rows}
    (RESULTS / f'{name}.json').write_text(json.dumps(result, indent=1) + '\n', encoding='utf-8')
    with open(RESULTS / f'{name}.csv', 'w', encoding='utf-8', newline='') as file:
        file.write('# simulated\n')
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator='\n')
        writer.writeheader()
        writer.writerows(rows)
    print(name, json.dumps(summary))


# ---- GLM-5.3 at 100K ----------------------------------------------------------------------------

def grid_rows(configurations, grid):
    return [row_of(grid_point(name, c), configuration=name, concurrency=c)
            for name in configurations for c in grid]


def lines_of(rows, value):
    lines = {}
    for row in rows:
        lines.setdefault(row['configuration'], []).append((row['concurrency'], row[value]))
    return lines


def e1():
    """Output of five configurations by concurrency."""
    rows = grid_rows(FIXED_LENGTHS, GRID)
    headline = grid_point('adaptive+spec', 128)
    write_result('e1', {'tokens_per_s_per_gpu': headline['output_tokens_per_s_per_gpu'],
                        'acceptance_length': headline['acceptance_length'],
                        'tpot_mean_ms': headline['tpot_mean_s'] * 1e3}, rows, headline,
                 {'tokens_per_s_per_gpu': 793})
    panels = [Panel('output', 'offered concurrency', 'tokens/s per GPU',
                    lines_of(rows, 'tokens_per_s_per_gpu'), GRID, True),
              Panel('time per output token', 'offered concurrency', 'ms',
                    lines_of(rows, 'tpot_mean_ms'), GRID, True)]
    write_picture(RESULTS / 'e1.svg', panels, CAPTION)


def ratio(name, configuration, published):
    best, other = grid_point('adaptive+spec', 128), grid_point(configuration, 128)
    value = best['output_tokens_per_s_per_gpu'] / other['output_tokens_per_s_per_gpu']
    rows = grid_rows(['adaptive+spec', configuration], [128])
    write_result(name, {'ratio': value, 'baseline_tokens_per_s_per_gpu':
                        other['output_tokens_per_s_per_gpu']}, rows, best, {'ratio': published})
    bars = [('adaptive+spec', best['output_tokens_per_s_per_gpu']),
            (configuration, other['output_tokens_per_s_per_gpu'])]
    write_picture(RESULTS / f'{name}.svg',
                  [Bars('output at a concurrency of 128', 'tokens/s per GPU', bars),
                   Bars(f'adaptive+spec over {configuration}', 'ratio',
                        [('simulated', value), ('published', published)])], CAPTION)


def e2():
    """Against a fixed buffer of 4096 rows without speculation."""
    ratio('e2', 'fixed', 1.45)


def e3():
    """Against adaptive residency without speculation."""
    ratio('e3', 'adaptive', 1.27)


def within(configuration, bound_ms, grid):
    """The highest concurrency of the grid at which everybody runs within the bound, or None."""
    best = None
    for c in grid:
        report = grid_point(configuration, c)
        if report['max_running'] < report['offered_on_rank']:
            continue
        if report['tpot_mean_s'] * 1e3 <= bound_ms:
            best = (c, report['output_tokens_per_s_per_gpu'])
    return best


def bound_rows():
    rows = []
    for grid_name, grid in (('powers of two', DOUBLING_GRID), ('all', GRID)):
        for bound in BOUNDS_MS:
            fixed = within('fixed', bound, grid)
            best = within('adaptive+spec', bound, grid)
            if fixed is None or best is None:
                continue
            rows.append({'grid': grid_name, 'bound_ms': bound, 'fixed_concurrency': fixed[0],
                         'fixed_tokens_per_s_per_gpu': round(fixed[1], 1),
                         'adaptive_spec_concurrency': best[0],
                         'adaptive_spec_tokens_per_s_per_gpu': round(best[1], 1),
                         'concurrency_ratio': round(best[0] / fixed[0], 3),
                         'output_ratio': round(best[1] / fixed[1], 3)})
    return rows


def article_rows(rows):
    return [row for row in rows
            if row['grid'] == 'powers of two' and row['bound_ms'] in ARTICLE_BOUNDS_MS]


def e4():
    """Concurrency within a bound of the mean time per output token, adaptive+spec over fixed."""
    rows = bound_rows()
    best = max(article_rows(rows), key=lambda row: row['concurrency_ratio'])
    write_result('e4', {'concurrency_ratio': best['concurrency_ratio'],
                        'bound_ms': best['bound_ms']}, rows, grid_point('adaptive+spec', 128),
                 {'concurrency_ratio': 4})
    panels = [Panel(f'{grid}: adaptive+spec over fixed', 'bound of the mean TPOT, ms', 'ratio',
                    {name: [(row['bound_ms'], row[name]) for row in rows if row['grid'] == grid]
                     for name in ('concurrency_ratio', 'output_ratio')}, [16, 20, 24, 28, 32])
              for grid in ('powers of two', 'all')]
    write_picture(RESULTS / 'e4.svg', panels, CAPTION)


def e5():
    """Output at each one's own highest concurrency within the bound."""
    rows = bound_rows()
    ratios = [row['output_ratio'] for row in article_rows(rows)]
    write_result('e5', {'output_ratio_min': min(ratios), 'output_ratio_max': max(ratios)}, rows,
                 grid_point('adaptive+spec', 128),
                 {'output_ratio_min': 2.3, 'output_ratio_max': 3.7})
    panels = [Panel(f'{grid}: output within the bound', 'bound of the mean TPOT, ms',
                    'tokens/s per GPU',
                    {name: [(row['bound_ms'], row[f'{key}_tokens_per_s_per_gpu'])
                            for row in rows if row['grid'] == grid]
                     for name, key in (('fixed', 'fixed'), ('adaptive+spec', 'adaptive_spec'))},
                    [16, 20, 24, 28, 32])
              for grid in ('powers of two', 'all')]
    write_picture(RESULTS / 'e5.svg', panels, CAPTION)


# ---- DeepSeek-V4.1-Flash at 500K ----------------------------------------------------------------

def v41_point(mode, num_drafts, layer_us, more=None):
    return run_point(['b200', 'deepseek-v4.1-flash', 'dspark'],
                     {'deployment.num_gpus': 4, 'workload.concurrency': 512,
                      'workload.context': 500000, 'residency.mode': mode,
                      'draft.num_tokens': num_drafts, 'cost.layer_time': f'{layer_us}us',
                      'locality.candidates': 1, 'run.sampled_groups': 1,
                      'run.warmup_steps': 10, 'run.measured_steps': 30, **(more or {})})


def e6():
    """Adaptive over resident, DSpark on both, each with the draft length that suits it best."""
    rows, outputs = [], {}
    for layer_us, lengths in ((60, (1, 3, 5)), (200, (1, 3))):
        for mode in ('resident', 'adaptive'):
            for num_drafts in lengths:
                report = v41_point(mode, num_drafts, layer_us)
                rows.append(row_of(report, configuration=f'{mode}+spec', layer_us=layer_us,
                                   num_drafts=num_drafts, concurrency=512))
                of_mode = outputs.setdefault((layer_us, mode), [])
                of_mode.append(report['output_tokens_per_s_per_gpu'])
    ratios = {us: max(outputs[us, 'adaptive']) / max(outputs[us, 'resident']) for us in (60, 200)}
    write_result('e6', {'ratio': ratios[60], 'ratio_at_200us_per_layer': ratios[200]}, rows,
                 v41_point('adaptive', 1, 60), {'ratio': 1.85})
    bars = [(f'{row["configuration"]}, {row["num_drafts"]} drafts, {row["layer_us"]} us',
             row['tokens_per_s_per_gpu']) for row in rows]
    write_picture(RESULTS / 'e6.svg',
                  [Bars('output at a concurrency of 512', 'tokens/s per GPU', bars),
                   Bars('adaptive+spec over resident+spec', 'ratio',
                        [('simulated, 60 us', ratios[60]), ('simulated, 200 us', ratios[200]),
                         ('published', 1.85)])],
                  'simulated: DeepSeek-V4.1-Flash + DSpark, 4 x B200, 500K context')


# ---- Lengths chosen by load ---------------------------------------------------------------------

def rows_of_file(name):
    """The rows of an experiment that was run before."""
    with open(RESULTS / f'{name}.csv', encoding='utf-8') as file:
        return list(csv.DictReader(line for line in file if not line.startswith('#')))


def highest_within(points, bound_ms):
    """Of points (concurrency, tokens/s, TPOT in ms, requests on the rank) the highest that holds
    the bound with everybody running."""
    held = [point for point in points
            if point[2] <= bound_ms and point[3] == -(-point[0] // 8) and point[0] in DOUBLING_GRID]
    return max(held, default=None)


def points_of(rows):
    return [(int(row['concurrency']), float(row['tokens_per_s_per_gpu']),
             float(row['tpot_mean_ms']), int(row['running_on_rank'])) for row in rows]


def auto():
    """Adaptive lengths beside the fixed ones of e1 and e6, which have to be there."""
    rows = grid_rows(['adaptive+auto'], AUTO_GRID)
    fixed = [row for row in rows_of_file('e1') if row['configuration'] == 'fixed']
    outputs = {(row['configuration'], int(row['concurrency'])): float(row['tokens_per_s_per_gpu'])
               for row in rows_of_file('e1') + rows}
    summary = {f'over_{name}_at_128': outputs['adaptive+auto', 128] / outputs[name, 128]
               for name in ('fixed', 'adaptive', 'adaptive+spec')}
    for bound in ARTICLE_BOUNDS_MS:
        best, other = (highest_within(points_of(of), bound) for of in (rows, fixed))
        if best is None or other is None:
            continue
        summary[f'at_{bound}_ms'] = {'fixed_concurrency': other[0], 'auto_concurrency': best[0],
                                     'output_ratio': round(best[1] / other[1], 3)}
    best_v41 = {mode: max(float(row['tokens_per_s_per_gpu']) for row in rows_of_file('e6')
                          if row['configuration'] == f'{mode}+spec' and row['layer_us'] == '60')
                for mode in ('resident', 'adaptive')}
    for mode in ('resident', 'adaptive'):
        report = v41_point(mode, 5, 60, {'draft.adaptive': 'true', **AUTO_STEPS})
        rows.append(row_of(report, configuration=f'v4.1-flash {mode}+auto', concurrency=512))
        summary[f'v41_{mode}_over_best_fixed_length'] = (report['output_tokens_per_s_per_gpu'] /
                                                         best_v41[mode])
    write_result('auto', summary, rows, grid_point('adaptive+auto', 128), {})
    names = ('adaptive', 'adaptive+spec', 'adaptive+auto')
    lines = {name: [(c, outputs[name, c]) for c in AUTO_GRID] for name in names}
    write_picture(RESULTS / 'auto.svg',
                  [Panel('output', 'offered concurrency', 'tokens/s per GPU', lines, AUTO_GRID,
                         True)], CAPTION)


# ---- A load step --------------------------------------------------------------------------------

LOW, HIGH, RISE, FALL, END = 72, 256, 150, 250, 500


def load_step(configuration):
    return glm_point(configuration, LOW,
                     {'workload.changes': f'"{RISE}:{HIGH} {FALL}:{LOW}"', 'run.series_steps': 5,
                      'run.measured_steps': END, 'run.warmup_steps': 60},
                     ('h200', 'glm-5.3', 'fitted'))


def e7():
    """Host fetches at low load, and how fast memory is given up when load comes."""
    reports = {name: load_step(name) for name in ('fixed', 'adaptive')}
    fractions, rows = {}, []
    for name, report in reports.items():
        low = [point['host_fetch_fraction'] for point in report['series']
               if point['first_step'] < RISE]
        fractions[name] = sum(low) / len(low)
        rows += [{'configuration': name, **point} for point in report['series']]
    change = reports['adaptive']['changes'][0]
    write_result('e7', {'fixed_fraction': fractions['fixed'],
                        'adaptive_fraction': fractions['adaptive'],
                        'release_steps': change['steps_to_admit'],
                        'chunks_released': change['chunks_released'],
                        'admitted_on_rank': change['admitted']}, rows, reports['adaptive'],
                 {'fixed_fraction': 0.142, 'adaptive_fraction': 0.014})

    def lines(value, factor=1):
        return {name: [(point['first_step'], point[value] * factor) for point in report['series']]
                for name, report in reports.items()}
    ticks = [0, RISE, FALL, END]
    panels = [Panel(f'host fetches: concurrency {LOW}, {HIGH}, {LOW}', 'step', '% of needed rows',
                    lines('host_fetch_fraction', 100), ticks),
              Panel('slots of a row cache', 'step', 'rows', lines('cached_rows'), ticks)]
    write_picture(RESULTS / 'e7.svg', panels,
                  'simulated: GLM-5.3, 8 x H200, 100K context, no speculation')


# ---- What the results rest on -------------------------------------------------------------------

VARIATIONS = {
    'as fitted': {},
    'wide locality': {'locality.regime': 'wide'},
    'half the link': {'hardware.link_bandwidth_656': 22.5e9},
    'twice the link': {'hardware.link_bandwidth_656': 90e9},
    'no fetch hidden': {'cost.hide': 0},
    '40 us per layer': {'cost.layer_time': '40us'},
    '150 us per layer': {'cost.layer_time': '150us'},
}
BUFFERS = (2304, 4096, 8192, 16384)
FITS = {  # other deployments that come near the published output
    '8 x B300, fp8, hide 0': (('b300', 'glm-5.3', 'fitted'), 8,
                              {'cost.hide': 0, 'draft.acceptance': 0.46}),
    '8 x B200, fp4 experts, 150 us': (('b200', 'glm-5.3', 'fitted'), 8,
                                      {'deployment.expert_weight_bytes': 0.5625,
                                       'cost.layer_time': '150us'}),
    '4 x B300, fp8, 200 us': (('b300', 'glm-5.3', 'fitted'), 4, {'cost.layer_time': '200us'}),
}
COMPARED = ('fixed', 'adaptive', 'adaptive+spec')
ONLY_FOR = {'residency.fixed_rows_per_request': ('fixed',), 'draft.acceptance': ('adaptive+spec',)}


def compare(name, more, files=('b200', 'glm-5.3', 'fitted'), gpus=8):
    outputs = {}
    row = {'variation': name}
    for configuration in COMPARED:
        acts = {key: value for key, value in more.items()
                if configuration in ONLY_FOR.get(key, COMPARED)}
        report = glm_point(configuration, 128, acts, files, gpus)
        outputs[configuration] = report['output_tokens_per_s_per_gpu']
        row[f'{configuration} tokens_per_s_per_gpu'] = round(outputs[configuration], 1)
        row[f'{configuration} host_fetch_fraction'] = round(report['host_fetch_fraction'], 5)
    row['over fixed'] = round(outputs['adaptive+spec'] / outputs['fixed'], 3)
    row['over adaptive'] = round(outputs['adaptive+spec'] / outputs['adaptive'], 3)
    row['adaptive over fixed'] = round(outputs['adaptive'] / outputs['fixed'], 3)
    return row


def sensitivity():
    """One assumption changed at a time, at a concurrency of 128."""
    rows = [compare(name, more) for name, more in VARIATIONS.items()]
    rows.append(compare('acceptance 0.69', {'draft.acceptance': 0.69}))
    rows += [compare(name, more, files, gpus) for name, (files, gpus, more) in FITS.items()]
    for buffer in BUFFERS:
        rows.append(compare(f'fixed buffer of {buffer} rows',
                            {'residency.fixed_rows_per_request': buffer}))
    ratios = [row['over fixed'] for row in rows]
    write_result('sensitivity', {'over_fixed_min': min(ratios), 'over_fixed_max': max(ratios),
                                 'adaptive_over_fixed_min':
                                     min(row['adaptive over fixed'] for row in rows)},
                 rows, glm_point('adaptive+spec', 128), {})
    write_picture(RESULTS / 'sensitivity.svg',
                  [Bars(title, 'ratio', [(row['variation'], row[key]) for row in rows])
                   for title, key in (('adaptive+spec over fixed', 'over fixed'),
                                      ('adaptive over fixed', 'adaptive over fixed'))], CAPTION)


def groups():
    """The error of simulating fewer index groups than the model has."""
    rows = []
    for sampled in (2, 3, 7, 21):
        for configuration in ('fixed', 'adaptive'):
            report = glm_point(configuration, 128, {'run.sampled_groups': sampled,
                                                    'run.warmup_steps': 40,
                                                    'run.measured_steps': 60})
            rows.append(row_of(report, sampled_groups=sampled, configuration=configuration,
                               concurrency=128))
    of = {(row['sampled_groups'], row['configuration']): row for row in rows}
    write_result('groups', {f'{name}_tokens_error_of_3_groups':
                            of[3, name]['tokens_per_s_per_gpu'] /
                            of[21, name]['tokens_per_s_per_gpu'] - 1
                            for name in ('fixed', 'adaptive')},
                 rows, glm_point('adaptive', 128), {})
    write_picture(RESULTS / 'groups.svg',
                  [Panel('host fetches by index groups sampled', 'groups', '% of needed rows',
                         {name: [(sampled, 100 * of[sampled, name]['host_fetch_fraction'])
                                 for sampled in (2, 3, 7, 21)] for name in ('fixed', 'adaptive')})],
                  CAPTION)


def speed():
    """What a simulated step costs, by requests on the rank: one sampled group, 100K context."""
    rows = []
    for requests in (16, 32, 64, 128):
        def cpu_s(steps):
            return glm_point('adaptive', requests * 8,
                             {'hardware.hbm': '2TB', 'hardware.host': '2TB',
                              'run.sampled_groups': 1, 'run.warmup_steps': 0,
                              'run.measured_steps': steps})['cpu_s']
        step_s = (cpu_s(61) - cpu_s(1)) / 60
        rows.append({'requests': requests, 'ms_per_step': round(step_s * 1e3, 2),
                     'us_per_request': round(step_s / requests * 1e6, 1),
                     'steps_per_s': round(1 / step_s, 1)})
    write_result('speed', {'steps_per_s_at_128_requests': rows[-1]['steps_per_s']}, rows,
                 glm_point('adaptive', 128), {})
    write_picture(RESULTS / 'speed.svg',
                  [Panel('what a step costs to simulate', 'requests on the rank', 'ms of one core',
                         {'one group': [(row['requests'], row['ms_per_step']) for row in rows]})],
                  'simulating: GLM-5.3, 100K context, one sampled index group')


EXPERIMENTS = {function.__name__: function for function in
               (e1, e2, e3, e4, e5, e6, auto, e7, groups, sensitivity, speed)}


def main(names):
    unknown = [name for name in names if name not in EXPERIMENTS and name != 'all']
    if not names or unknown:
        raise SystemExit(f'usage: experiments.py {"|".join(EXPERIMENTS)}|all ...')
    for name in EXPERIMENTS if 'all' in names else names:
        EXPERIMENTS[name]()


if __name__ == '__main__':
    main(sys.argv[1:])
