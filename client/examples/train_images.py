#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on one pipeline and validates it on another; goes on where it was when it is started again.

    train_images.py TRAIN VALIDATION [--epochs N] [--rate R] [--state FILE]

Any number of these on one machine share each pipeline's work, also when they begin at different times. Under torchrun the ranks
divide it: the process group is all that a loader needs to know.

    torchrun --nproc_per_node 2 train_images.py TRAIN VALIDATION --state run.pt
"""

import argparse
import os

import torch
from torch import distributed, nn

import pinfeed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('train')
    parser.add_argument('validation')
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--rate', type=float, default=0.01)
    parser.add_argument('--state')
    return parser.parse_args()


def make_model():
    torch.manual_seed(0)  # the network's; pinfeed has seeds of its own
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 4 * 4, 10))


def validate(model, loader):
    """Which share of all samples is right. Padding of the ranks' last batches counts for nothing."""
    right = torch.zeros(2)
    with torch.no_grad():
        for (images, labels), info in loader:
            good = model(images).argmax(1) == labels
            right += torch.tensor([good[info.valid].sum(), info.valid.sum()])
    if distributed.is_initialized():
        distributed.all_reduce(right)
    return (right[0] / right[1]).item()


def save(path, model, optimizer, loader):
    if path and loader.rank == 0:
        state = {'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'loader': loader.state_dict()}
        torch.save(state, path + '.new')
        os.replace(path + '.new', path)


def main():
    options = arguments()
    if 'TORCHELASTIC_RUN_ID' in os.environ:
        distributed.init_process_group('gloo')
    model = make_model()  # what is saved: whatever the number of ranks is next time
    optimizer = torch.optim.SGD(model.parameters(), options.rate, momentum=0.9)
    train = pinfeed.Loader(options.train)
    validation = pinfeed.Loader(options.validation, with_info=True)
    if options.state and os.path.exists(options.state):
        state = torch.load(options.state)
        model.load_state_dict(state['model'])
        optimizer.load_state_dict(state['optimizer'])
        train.load_state_dict(state['loader'])
    trained = nn.parallel.DistributedDataParallel(model) if distributed.is_initialized() else model

    for epoch in range(train.state_dict()['epoch'], options.epochs):
        for step, (images, labels) in enumerate(train):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(trained(images), labels)
            loss.backward()
            optimizer.step()
            if step % 100 == 99:
                save(options.state, model, optimizer, train)
        save(options.state, model, optimizer, train)
        share = validate(model, validation)
        if train.rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, {100 * share:.1f} % right, waited {train.stats()['wait_s']:.1f} s",
                  flush=True)


if __name__ == '__main__':
    main()
