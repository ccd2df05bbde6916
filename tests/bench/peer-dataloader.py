#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The peer: the same work as a user of PyTorch writes it. Prints one line of JSON with the keys of `pinfeedctl bench`.

    peer-dataloader.py photos WORKERS ROWS FOLDER
    peer-dataloader.py article WORKERS ROWS
    peer-dataloader.py plain WORKERS ROWS
    peer-dataloader.py folder WORKERS ROWS FOLDER
    peer-dataloader.py --loader pinfeed [--share NAME] ...
    peer-dataloader.py --loader pipeline folder WORKERS ROWS FOLDER

plain is the article's dataset without its sleep, in one long epoch; folder is that of photos, epoch by epoch. With
pinfeed's loader the same dataset is read by pinfeed.DataLoader, and nothing else changes; pipeline is a pinfeed.Loader of the
pipeline that pinfeed.native() makes of it. What the daemon and the workers have used by then is told beside.

Measured from the making of the loader, when all modules are imported and the folder has been listed: what the loader
itself costs. CPU time is that of this process and of its workers from the same moment on.
"""

import argparse
import functools
import json
import resource
import sys
import time
import warnings

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class Repeated(Dataset):
    """A folder several times over, so that one epoch has the rows that are asked for and DataLoader's pause between
    epochs is not measured."""

    def __init__(self, dataset, rows):
        self.dataset = dataset
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        return self.dataset[index % len(self.dataset)]


class Article(Dataset):
    """10,000 samples of 512 features, each so many seconds away; as often as `rows` says."""

    def __init__(self, seconds, rows=10000):
        torch.manual_seed(0)  # or copies would have different data, and share nothing
        self.features = torch.randn(10000, 512)
        self.labels = torch.randint(0, 10, (10000,))
        self.seconds = seconds
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        index %= 10000
        if self.seconds:
            time.sleep(self.seconds)
        return self.features[index], self.labels[index]


def folder(rows, path):
    transforms = torchvision.transforms.Compose([
        torchvision.transforms.RandomResizedCrop(224),
        torchvision.transforms.RandomHorizontalFlip(),
        torchvision.transforms.ToTensor(),
        torchvision.transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ])
    return torchvision.datasets.ImageFolder(path, transforms), 64


def photos(rows, path):
    dataset, batch_size = folder(rows, path)
    return Repeated(dataset, rows), batch_size


def article(rows):
    return Article(100e-6), 128


def plain(rows):
    return Article(0, rows), 128


WORKLOADS = {workload.__name__: workload for workload in (photos, article, plain, folder)}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument('--loader', choices=['torch', 'pinfeed', 'pipeline'], default='torch')
    parser.add_argument('--share')
    parser.add_argument('workload', choices=WORKLOADS)
    parser.add_argument('workers', type=int)
    parser.add_argument('rows', type=int)
    parser.add_argument('folder', nargs='*')
    return parser.parse_args()


def cpu_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def find_loader(options):
    """What makes a loader of a dataset, and what it says of itself in the end."""
    if options.loader == 'torch':
        return DataLoader, dict
    import pinfeed

    def pipeline(dataset, num_workers, **arguments):
        return pinfeed.Loader(pinfeed.native(dataset, workers=num_workers, **arguments))

    def ask():
        status = pinfeed.status()
        return {'rows_prepared': sum(pipeline['rows_prepared'] for pipeline in status['pipelines']),
                'cpu_seconds_daemon': status['cpu_seconds']['daemon'], 'cpu_seconds_workers': status['cpu_seconds']['workers']}

    if options.loader == 'pipeline':
        return pipeline, ask
    return functools.partial(pinfeed.DataLoader, share=options.share), ask


def main():
    options = arguments()
    warnings.filterwarnings('ignore')  # of more workers than CPUs: the article's sleep
    make, say = find_loader(options)
    dataset, batch_size = WORKLOADS[options.workload](options.rows, *options.folder)
    rows = batches = 0
    first = None
    cpu, began = cpu_seconds(), time.monotonic()
    loader = make(dataset, batch_size=batch_size, shuffle=True, num_workers=options.workers)
    while rows < options.rows:
        for data, _ in loader:
            if first is None:
                first = time.monotonic() - began
            rows += len(data)
            batches += 1
            if rows >= options.rows:
                break
    seconds, said = time.monotonic() - began, say()
    if options.loader != 'torch':
        loader.close()
    del data, loader  # ends and reaps the workers, so that their time counts
    print(json.dumps({'jobs': 1, 'seconds': seconds, 'rows': rows, 'rows_per_second': rows / seconds,
                      'batches': batches, 'first_batch_ms': first * 1e3, 'cpu_seconds': cpu_seconds() - cpu, **said}))


if __name__ == '__main__':
    main()
