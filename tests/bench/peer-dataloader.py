#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The peer: the same work as a user of PyTorch writes it. Prints one line of JSON with the keys of `pinfeedctl bench`.

    peer-dataloader.py photos WORKERS ROWS FOLDER
    peer-dataloader.py article WORKERS ROWS

Measured from the making of the iterator, when all modules are imported and the folder has been listed: what DataLoader
itself costs. CPU time is that of this process and of its workers from the same moment on.
"""

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
    """10,000 samples of 512 features, each 100 us away."""

    def __init__(self):
        self.features = torch.randn(10000, 512)
        self.labels = torch.randint(0, 10, (10000,))

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        time.sleep(100e-6)
        return self.features[index], self.labels[index]


def photos(workers, rows, folder):
    transforms = torchvision.transforms.Compose([
        torchvision.transforms.RandomResizedCrop(224),
        torchvision.transforms.RandomHorizontalFlip(),
        torchvision.transforms.ToTensor(),
        torchvision.transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ])
    dataset = Repeated(torchvision.datasets.ImageFolder(folder, transforms), rows)
    return DataLoader(dataset, batch_size=64, shuffle=True, num_workers=workers)


def article(workers, rows):
    return DataLoader(Article(), batch_size=128, shuffle=True, num_workers=workers)


def cpu_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main():
    warnings.filterwarnings('ignore')  # of more workers than CPUs: the article's sleep
    workers, wanted = int(sys.argv[2]), int(sys.argv[3])
    loader = {'photos': photos, 'article': article}[sys.argv[1]](workers, wanted, *sys.argv[4:])
    rows = batches = 0
    first = None
    cpu, began = cpu_seconds(), time.monotonic()
    while rows < wanted:
        for data, _ in loader:
            if first is None:
                first = time.monotonic() - began
            rows += len(data)
            batches += 1
            if rows >= wanted:
                break
    seconds = time.monotonic() - began
    del data, loader  # ends and reaps the workers, so that their time counts
    print(json.dumps({'jobs': 1, 'seconds': seconds, 'rows': rows, 'rows_per_second': rows / seconds,
                      'batches': batches, 'first_batch_ms': first * 1e3, 'cpu_seconds': cpu_seconds() - cpu}))


if __name__ == '__main__':
    main()
