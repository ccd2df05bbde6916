#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""pinfeed against PyTorch's DataLoader and against bare loops: alternating runs, medians with their range, ratios.

    compare.py BUILD PHOTOS [--quick] [--rounds N] [SECTION...]

Runs alternate because the clocks of shared machines wander by more than the differences that matter; each run starts
from nothing, so the first batch is a cold one for both. Nobody touches the bytes unless a section says so.

Against DataLoader: pinfeed's time runs from the start of its client to the client's end, on a daemon that has its memory
(reserve: start) and has prepared nothing; DataLoader's from the making of its iterator, with imports and the listing of the
files done before, to its last batch. CPU is all that was used:
daemon, workers and client, or the training process and its workers. Memory is the sum of the proportional set sizes of
all these processes.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import runs  # noqa: E402
import scrape  # noqa: E402

MORE, LESS = True, False  # what is better

AGAINST_DATALOADER = [
    ('rows/s', lambda run: run['rows'] / run['seconds'], MORE),
    ('CPU per row, us', lambda run: 1e6 * run['all_cpu_seconds'] / run['rows'], LESS),
    ('peak memory, MiB', lambda run: run['peak_bytes'] / 2**20, LESS),
    ('first batch, ms', lambda run: run['first_batch_ms'], LESS),
]


def show(values):
    digits = 0 if statistics.median(values) >= 100 else 2 if statistics.median(values) < 10 else 1
    return f'{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}..{max(values):,.{digits}f})'


def live(text):
    if sys.stderr.isatty():
        print(f'\r\033[K{text}', end='', file=sys.stderr, flush=True)


def alternate(contestants, rounds):
    """Lists of runs, by contestant: (name, function of no arguments that makes a run)."""
    results = [[] for _ in contestants]
    for number in range(rounds):
        for result, (name, run) in zip(results, contestants):
            live(f'round {number + 1} of {rounds}: {name}')
            result.append(run())
    live('')
    return results


def compare(title, contestants, figures, rounds):
    """contestants: two of (name, function of no arguments that makes a run)."""
    results = alternate(contestants, rounds)
    print(f'{title}\n\n{"":<22}' + ''.join(f'{name:>28}' for name, _ in contestants) + f'{"ratio":>16}')
    for name, of, *more_is_better in figures:
        a, b = ([of(run) for run in result] for result in results)
        ratio = statistics.median(a) / (statistics.median(b) or float('nan'))
        words = f'1 / {1 / ratio:.2f}' if more_is_better == [LESS] else f'{ratio:.3f} x'
        print(f'{name:<22}{show(a):>28}{show(b):>28}{words:>16}')
    print(flush=True)


def photos(bench, quick, rounds):
    rows = 500 if quick else 12000  # the start, which counts, is 2 % of it
    compare(f'Photographs, 2 workers each, {rows} rows: crop 224, flip, float32, normalize, batch 64, shuffled',
            [('pinfeed', lambda: bench.pinfeed('photos', rows)),
             ('DataLoader', lambda: bench.dataloader('photos', rows))], AGAINST_DATALOADER, rounds)


def article(bench, quick, rounds):
    rows = 5000 if quick else 20000
    compare(f"The article's workload, 4 workers each, {rows} rows: 512 features, 100 us a sample, batch 128, shuffled",
            [('pinfeed', lambda: bench.pinfeed('article', rows)),
             ('DataLoader', lambda: bench.dataloader('article', rows))], AGAINST_DATALOADER, rounds)


DATASETS = [
    ('rows/s', lambda run: run['rows'] / run['seconds'], MORE),
    ('CPU per row, us', lambda run: 1e6 * run['all_cpu_seconds'] / run['rows'], LESS),
    ('CPU per batch, us', lambda run: 1e6 * run['all_cpu_seconds'] / run['batches'], LESS),
    ('peak memory, MiB', lambda run: run['peak_bytes'] / 2**20, LESS),
    ('first batch, ms', lambda run: run['first_batch_ms'], LESS),
]


def dataset(bench, quick, rounds):
    rows = 5000 if quick else 20000
    compare(f"The article's dataset in Python, 4 workers each, {rows} rows: 512 features, 100 us away (budget 1.5 x)",
            [('pinfeed.DataLoader', lambda: bench.dataset('article', rows)),
             ('DataLoader', lambda: bench.peers(['article'], rows, 1))], DATASETS, rounds)
    rows = 100000 if quick else 1000000
    compare(f'The same without the sleep, {rows} rows, batches of 256 KiB (budgets 3 x and 1 / 3)',
            [('pinfeed.DataLoader', lambda: bench.dataset('plain', rows)),
             ('DataLoader', lambda: bench.peers(['plain'], rows, 1))], DATASETS, rounds)


def copies(bench, quick, rounds):
    rows = 5000 if quick else 20000
    figures = [('rows prepared', lambda run: run['rows_prepared'], LESS), *DATASETS]
    compare(f"Four copies of the article's script, {rows} rows each: one preparation against one for each",
            [('share="bench"', lambda: bench.dataset('article', rows, 4)),
             ('4 DataLoaders', lambda: bench.peers(['article'], rows, 4))], figures, rounds)


def native(bench, quick, rounds):
    rows = 1000 if quick else 12000
    compare(f'An ImageFolder that DataLoader makes a pipeline of, {rows} rows: against a Loader of that pipeline (budget 0.95 x)',
            [('pinfeed.DataLoader', lambda: bench.dataset('folder', rows)),
             ('pinfeed.Loader', lambda: bench.dataset('folder', rows, loader='pipeline'))], DATASETS, rounds)


def efficiency(bench, quick, rounds):
    rows = 500 if quick else 4000
    compare(f'Preprocessing efficiency on the photographs, {rows} rows: daemon and workers against a bare loop (budget 1.08 x)',
            [('pinfeed', lambda: bench.pinfeed('photos', rows)),
             ('bare loop', lambda: {**bench.bareloop('photos', rows), 'rows_prepared': rows})],
            [('CPU per row, us', lambda run: 1e6 * run['cpu_seconds'] / run['rows_prepared'])], rounds)


def rank(title, contestants, pairs, rounds):
    """Any number of contestants, a line each. pairs: (words, figure, name, name of what it is divided by, budget); each ratio
    is the median of the rounds' own, because all that is in a round is near in time."""
    results = dict(zip((name for name, _ in contestants), alternate(contestants, rounds)))
    print(f'{title}\n\n{"":<22}{"rows/s":>28}{"CPU per row, us":>28}')
    for name, result in results.items():
        print(f'{name:<22}' + ''.join(f'{show([of(run) for run in result]):>28}' for of in (rate, cpu_per_row)))
    print()
    for words, of, name, yardstick, budget in pairs:
        ratios = [of(a) / of(b) for a, b in zip(results[name], results[yardstick])]
        print(f'{words:<54}{statistics.median(ratios):>8.3f} x ({min(ratios):.3f}..{max(ratios):.3f})   budget {budget}')
    print(flush=True)


def rate(run):
    return run['rows'] / run['seconds']


def cpu_per_row(run):
    return 1e6 * run['cpu_seconds'] / run.get('rows_prepared', run['rows'])


def speed(run):
    return 1 / cpu_per_row(run)


def images(bench, quick, rounds):
    """The budgets are for photographs. Pictures that script/bench has drawn decode twice as fast, so all else weighs more."""
    if bench.croploop('libjpeg', 250, '--digest') != bench.croploop('codec', 250, '--digest'):
        raise SystemExit('the codec and the bare libjpeg loop give other pixels: there is nothing to compare')
    rows = 250 if quick else 500  # short runs, and more of them: what is compared is nearer in time
    loops = [('bare libjpeg', lambda: bench.croploop('libjpeg', rows)), ('codec', lambda: bench.croploop('codec', rows)),
             *((f'pipeline, {dtype}', lambda dtype=dtype: bench.bareloop('photos', rows, dtype))
               for dtype in ('float32', 'float16', 'uint8'))]
    with pinned():
        rank(f'Photographs on one CPU, {rows} rows: windows of random_resized_crop decoded, and the whole pipeline', loops,
             [('speed of the codec against bare libjpeg', speed, 'codec', 'bare libjpeg', '>= 0.97'),
              ('of the pipeline to float32 against the codec', speed, 'pipeline, float32', 'codec', '>= 0.80'),
              ('of the pipeline to float16 against float32', speed, 'pipeline, float16', 'pipeline, float32', '> 1'),
              ('of the pipeline to uint8 against float32', speed, 'pipeline, uint8', 'pipeline, float32', '> 1')], 3 * rounds)
    rows = 500 if quick else 12000  # ring and workers are made within the run: a quarter of a second of CPU, 2 % of it
    rank(f'The pipeline to float32 with 2 workers, {rows} rows in batches of 64, shuffled',
         [('pinfeed', lambda: bench.pinfeed('photos', rows)), ('DataLoader', lambda: bench.dataloader('photos', rows)),
          ('bare loop', lambda: bench.bareloop('photos', rows))],
         [('rows/s of pinfeed against DataLoader', rate, 'pinfeed', 'DataLoader', '>= 6'),
          ('CPU per row of daemon and workers against a bare loop', cpu_per_row, 'pinfeed', 'bare loop', '<= 1.05')], rounds)


def sharing(bench, quick, rounds):
    rows = 500 if quick else 12000  # what is prepared ahead at the end, some slots, is 4 % of it
    compare(f'Sharing, {rows} rows of the photographs for each job, every byte read (budgets 1.02 x and 1.05 x)',
            [('4 jobs', lambda: bench.pinfeed('photos', rows, '--jobs', '4', '--touch')),
             ('1 job', lambda: bench.pinfeed('photos', rows, '--touch'))],
            [('rows prepared', lambda run: run['rows_prepared']),
             ('CPU s, daemon+workers', lambda run: run['cpu_seconds']),
             ('CPU per row, us', lambda run: 1e6 * run['cpu_seconds'] / run['rows_prepared']),
             ('rows delivered', lambda run: run['rows'])], rounds)


@contextlib.contextmanager
def pinned():
    """All processes of a run on one CPU: where the kernel wakes a sleeper otherwise is worth more than what is measured."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)


@contextlib.contextmanager
def busy():
    """Every CPU has a worker's load: something that computes, at nice 10."""
    loads = [subprocess.Popen(['nice', '-n', '10', sys.executable, '-c', 'while True: pass'])
             for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for load in loads:
            load.kill()
            load.wait()


def handover(bench, quick, rounds):
    batches = 500 if quick else 3000
    figures = [('p50, us', lambda run: run['handover_us']['p50']),
               ('p99, us', lambda run: run['handover_us']['p99']),
               ('max, us', lambda run: run['handover_us']['max']),
               ('daemon CPU, us/batch', lambda run: run['cpu_us_per_batch'] if 'cpu_us_per_batch' in run
                else 1e6 * run['daemon_cpu_seconds'] / run['batches'])]
    contestants = [('pinfeed', lambda: bench.pinfeed('handover', batches)), ('relay', lambda: bench.relay(batches))]
    with pinned():
        compare(f'Hand-over of {batches} batches, one each 1.1 ms, on one CPU: against a relay of the same messages '
                '(budgets p50 1.5 x, CPU 2 x; p99 < 1 ms and max < 20 ms on an idle machine)', contestants, figures, rounds)
    with busy():
        compare('The same with every CPU busy at nice 10 (budget p99 1.5 x)', contestants, figures, rounds)
    floor = bench.roundtrip()['roundtrip_us']
    print(f'A bare round trip of one record: p50 {floor["p50"]:.1f} us, p99 {floor["p99"]:.1f} us\n')


def small(bench, quick, rounds):
    rows = 20000 if quick else 200000
    rates = [bench.pinfeed('small', rows)['rows_per_second'] for _ in range(rounds)]
    print(f'Small batches of one row of 4 KiB, one job, {rows} of them: {show(rates)} batches/s (budget 20,000)\n')


def borders(bench, quick, rounds):
    epochs = 6 if quick else 25  # the first of which is left out
    for pipeline, how in (('borders', 'prepared ahead'), ('borders_asked', 'not prepared before the job asks')):
        results = [bench.borders(pipeline, epochs) for _ in range(rounds)]
        border = [run['border_us']['p50'] for run in results]
        p50, p99 = ([run['inner_us'][name] for run in results] for name in ('p50', 'p99'))
        ratio = statistics.median(border) / statistics.median(p99)
        print(f'Ends of epochs, {results[0]["border"]} a round, the next epoch {how}: median gap {show(border)} us; '
              f'inner gaps: median {show(p50)} us, p99 {show(p99)} us; ratio to that {ratio:.2f} (budget 1.00)\n')


def metrics(bench, quick, rounds):
    for _ in range(rounds):
        scrape.report(os.path.join(bench.build, 'install/bin'), scrape.SCRAPES // 10 if quick else scrape.SCRAPES)


SECTIONS = {section.__name__: section for section in (photos, article, dataset, copies, native, efficiency, images, sharing,
                                                      handover, small, borders, metrics)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('build')
    parser.add_argument('photos')
    parser.add_argument('sections', nargs='*', metavar='SECTION', help=', '.join(SECTIONS))
    parser.add_argument('--quick', action='store_true', help='two short rounds: does it run at all')
    parser.add_argument('--rounds', type=int, default=5)
    options = parser.parse_intermixed_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f'no section {", ".join(unknown)}; there are {", ".join(SECTIONS)}')
    bench = runs.Bench(options.build, options.photos)
    for name in options.sections or SECTIONS:
        SECTIONS[name](bench, options.quick, 2 if options.quick else options.rounds)


if __name__ == '__main__':
    main()
