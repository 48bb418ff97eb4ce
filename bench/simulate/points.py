"""Runs of `dhisparse simulate`, each kept under build/ until the program or a file it reads
changes."""

import hashlib
import json
import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / 'build/release/bin/dhisparse'
CACHE = ROOT / 'build/simulate'

# Work of a run: so many query rows are measured, and half as many warm the caches up before.
MEASURED_ROWS = 3000
STEPS = (30, 150)
WARMUP_STEPS = (15, 40)
# What the scheduler learns of drafts takes so long to settle.
AUTO_STEPS = {'run.measured_steps': 48, 'run.warmup_steps': 240}

CONFIGURATIONS = {
    'resident': {'residency.mode': 'resident'},
    'fixed': {'residency.mode': 'fixed', 'residency.fixed_rows_per_request': 4096},
    'adaptive': {'residency.mode': 'adaptive'},
    'adaptive+spec': {'residency.mode': 'adaptive'},
    'resident+spec': {'residency.mode': 'resident'},
    # The scheduler chooses how many drafts to verify.
    'adaptive+auto': {'residency.mode': 'adaptive', 'draft.adaptive': 'true'},
}


def clamp(value, limits):
    return max(limits[0], min(limits[1], int(value)))


def steps_of(requests, rows_each):
    """Settings for a run of so many requests on the rank: more steps where a step costs less."""
    measured = clamp(MEASURED_ROWS / (requests * rows_each), STEPS)
    return {'run.measured_steps': measured, 'run.warmup_steps': clamp(measured / 2, WARMUP_STEPS)}


def key_of(arguments, files):
    digest = hashlib.sha256(json.dumps(arguments).encode())
    for path in [PROGRAM] + files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def run_point(names, settings):
    """The report of one run. names: files of configs/sim, settings: {key: value}."""
    files = [ROOT / 'configs/sim' / f'{name}.yaml' for name in names]
    arguments = ['simulate', '--json']
    for name in names:
        arguments += ['--config', f'configs/sim/{name}.yaml']
    for key, value in settings.items():
        arguments += ['--set', f'{key}={value}']
    kept = CACHE / f'{key_of(arguments, files)}.json'
    if not kept.exists():
        before = os.times()
        done = subprocess.run([str(PROGRAM)] + arguments, cwd=ROOT, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise SystemExit(f'{" ".join(arguments)}\n{done.stderr}')
        after = os.times()
        report = json.loads(done.stdout)
        report['cpu_s'] = round(after.children_user + after.children_system -
                                before.children_user - before.children_system, 2)
        CACHE.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(report), encoding='utf-8')
        print(time.strftime('%H:%M:%S'), f'{report["cpu_s"]:6.1f} s', *arguments[2:], flush=True)
    return json.loads(kept.read_text(encoding='utf-8'))


def glm_point(configuration, concurrency, more=None, files=('b200', 'glm-5.3', 'fitted'), gpus=8):
    """A run of GLM-5.3 in one of CONFIGURATIONS, by default with the fitted costs on 8 x B200."""
    is_auto = configuration.endswith('+auto')
    is_speculating = is_auto or configuration.endswith('+spec')
    names = list(files) + (['dflash2'] if is_speculating else [])
    requests = -(-concurrency // gpus)
    settings = {'workload.concurrency': concurrency, 'deployment.num_gpus': gpus,
                'locality.candidates': 1, **CONFIGURATIONS[configuration],
                **(AUTO_STEPS if is_auto else steps_of(requests, 8 if is_speculating else 1)),
                **(more or {})}
    return run_point(names, settings)
