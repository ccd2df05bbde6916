#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A training script as users of PyTorch have it, for an epoch; every byte that came to its device is compared.

    train.py article|photos [--folder FOLDER] [--how pin_memory|device] [--device DEVICE] [--batch N] [--slots N]

The loop is the same either way, `.to(device, non_blocking=True)` and all. With `pin_memory` batches come to page-locked
memory of torch's and the script moves them; with `device` the loader does, and `.to` has nothing left to do. What they
must be, a loader in host memory has said before. Prints lines "NAME TEXT" for tests/gpu/check; ends with 77 when something
that is needed is not here.
"""

import argparse
import errno
import sys
import time

LACKS = 77


def lack(words):
    print(words, file=sys.stderr)
    sys.exit(LACKS)


try:
    import torch
    from torch import nn
except ImportError:
    lack('torch is not installed')

import pinfeed  # noqa: E402

PHOTO_EDGE = 224


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument('workload', choices=['article', 'photos'])
    parser.add_argument('--folder')
    parser.add_argument('--how', choices=['pin_memory', 'device'], default='pin_memory')
    parser.add_argument('--device', default='cuda:0')
    parser.add_argument('--batch', type=int)
    parser.add_argument('--slots', type=int)
    return parser.parse_args()


def pipeline(options):
    """The article's 10,000 samples of 512 features, each 100 us away, by 4 workers; or a folder of images."""
    if options.workload == 'article':
        made = {'name': 'article', 'batch_size': 128, 'shuffle': True, 'workers': 4,
                'source': {'type': 'synthetic', 'samples': 10000, 'features': 512, 'delay_us': 100}}
    else:
        made = {'name': 'photos', 'batch_size': 16, 'shuffle': True,
                'source': {'type': 'imagefolder', 'path': options.folder},
                'transforms': [{'random_resized_crop': {'size': PHOTO_EDGE}}, 'random_horizontal_flip',
                               {'normalize': {'mean': [0.485, 0.456, 0.406], 'std': [0.229, 0.224, 0.225]}}]}
    if options.batch:
        made['batch_size'] = options.batch
    if options.slots:
        made['slots'] = options.slots
    return made


def loader(options):
    if options.how == 'pin_memory':
        return pinfeed.Loader(pipeline(options), pin_memory=True)
    try:
        return pinfeed.Loader(pipeline(options), device=options.device)
    except pinfeed.Error as error:
        if error.errno != errno.ENOTSUP:
            raise
        lack(f'this pinfeed has no Loader(device={options.device!r})')


def model(options):
    if options.workload == 'article':
        return nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    return nn.Sequential(nn.Conv2d(3, 16, 3, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 1000))


def train(options, batches):
    """What came to the device in an epoch, copied there; and the last loss."""
    device = torch.device(options.device)
    network = model(options).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    seen = []
    for inputs, labels in batches:
        inputs = inputs.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = criterion(network(inputs), labels)
        loss.backward()
        optimizer.step()
        seen.append((inputs.clone(), labels.clone()))
    return seen, loss.item()


def wrong(seen, expected):
    """Batches that are not what they must be."""
    pairs = zip(seen, expected)
    return abs(len(seen) - len(expected)) + sum(
        not all(torch.equal(a.cpu(), b) for a, b in zip(got, wanted)) for got, wanted in pairs)


def main():
    options = arguments()
    if options.device.startswith('cuda') and not torch.cuda.is_available():
        lack(f'torch {torch.__version__} sees no GPU')
    with pinfeed.Loader(pipeline(options), output='torch') as reference:
        expected = list(reference)
    with loader(options) as batches:
        began = time.monotonic()
        seen, loss = train(options, batches)
        seconds = time.monotonic() - began
    print('torch', torch.__version__)
    print('batches', len(expected))
    print('wrong_batches', wrong(seen, expected))
    print('rows_per_s', round(sum(len(labels) for _, labels in expected) / seconds))
    print('loss', f'{loss:.3f}')


if __name__ == '__main__':
    main()
