#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on an image folder and validates it; goes on where it was when it is started again.

    train_images.py FOLDER [--make] [--epochs N] [--rate R] [--gather N] [--device DEVICE] [--state FILE]

FOLDER has the directories `train` and `val`, and each of them a directory of JPEG files for each class. --make draws such a
folder if it is not there. Nothing has to run before this: the first loader starts a daemon of yours, which ends a minute
after the last one. Any number of these scripts on one machine share its work, also when they begin at different times.
"""

import argparse
import os
import subprocess

import torch
from torch import nn

import pinfeed

NORMALIZE = {'normalize': {'mean': [0.485, 0.456, 0.406], 'std': [0.229, 0.224, 0.225]}}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('folder')
    parser.add_argument('--make', action='store_true', help='draw the images if the folder is not there')
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--rate', type=float, default=0.01, help='learning rate')
    parser.add_argument('--gather', type=int, default=1, help='begin when so many of these scripts are there (sweep.py)')
    parser.add_argument('--device', default='cpu', help='such as cuda:0')
    parser.add_argument('--state', help='file to save to, and to go on from if it is there')
    return parser.parse_args()


def make(folder, per_class=40):
    """Ten classes of landscapes, by a program that the build of pinfeed's source tree makes."""
    tree = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..')
    program = os.path.join(tree, os.environ.get('PINFEED_BUILD', 'build'), 'tests/support/draw-images')
    if not os.path.exists(program):
        raise SystemExit(f'--make needs {os.path.normpath(program)}: build the source tree, or give a folder of your own')
    os.makedirs(folder)
    for seed, (part, count) in enumerate([('train', per_class), ('val', per_class // 2)]):
        subprocess.run([program, os.path.join(folder, part), '--per-class', str(count), '--size', '160x120',
                        '--seed', str(seed)], check=True, stdout=subprocess.DEVNULL)


def training(folder):
    """A pipeline: where samples come from, what is done to them, how they are batched. Whoever gives the same one shares it.
    With lockstep, scripts that train equally fast stay so near each other that all is prepared once."""
    return {
        'name': 'train',
        'source': {'type': 'imagefolder', 'path': os.path.join(folder, 'train')},
        'transforms': [{'random_resized_crop': {'size': 64}}, 'random_horizontal_flip', NORMALIZE],
        'batch_size': 32,
        'shuffle': True,
        'sharing': 'lockstep',
    }


def validation(folder):
    """Every image once, in order, nothing at random."""
    return {
        'name': 'val',
        'source': {'type': 'imagefolder', 'path': os.path.join(folder, 'val')},
        'transforms': [{'resize': {'size': 73}}, {'center_crop': {'size': 64}}, NORMALIZE],
        'batch_size': 32,
    }


def make_model(classes=10):
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 4 * 4, classes))


def train_epoch(model, optimizer, loader):
    """The mean loss. The loader gives what is left of its epoch: all of it, unless a state was loaded."""
    total = rows = 0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(labels)  # .item() would wait for the GPU at every step
        rows += len(labels)
    return float(total) / rows


def validate(model, folder, device):
    """Which share of the samples is right. A loader that is there and not read would keep its place in the ring from other
    scripts, and a new one is there at once; page-locking the ring would not pay for so short a while."""
    right = rows = 0
    with torch.no_grad(), pinfeed.Loader(validation(folder), device=device, pin='never') as loader:
        for images, labels in loader:
            right += (model(images).argmax(1) == labels).sum().item()
            rows += len(labels)
    return right / rows


def save(path, **parts):
    """The old file is there until the new one is whole."""
    torch.save({name: part.state_dict() for name, part in parts.items()}, path + '.new')
    os.replace(path + '.new', path)


def main():
    options = arguments()
    if options.make and not os.path.exists(options.folder):
        make(options.folder)
    torch.manual_seed(0)  # the network's; the loader has a seed of its own, the pipeline's
    model = make_model(len(os.listdir(os.path.join(options.folder, 'train')))).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), options.rate, momentum=0.9)
    loader = pinfeed.Loader(training(options.folder), gather=options.gather, device=options.device)
    if options.state and os.path.exists(options.state):
        state = torch.load(options.state, map_location=options.device)
        for name, part in {'model': model, 'optimizer': optimizer, 'loader': loader}.items():
            part.load_state_dict(state[name])

    for epoch in range(loader.state_dict()['epoch'], options.epochs):
        loss = train_epoch(model, optimizer, loader)
        share = validate(model, options.folder, options.device)
        print(f'epoch {epoch}: loss {loss:.3f}, {100 * share:.1f} % of the validation right', flush=True)
        if options.state:
            save(options.state, model=model, optimizer=optimizer, loader=loader)
    stats = loader.stats()
    print(f"waited {stats['wait_s']:.1f} s for {stats['rows']} rows; {stats['sharing']}")


if __name__ == '__main__':
    main()
