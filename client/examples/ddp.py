#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel on CPUs: killed at any moment, it goes on with as many ranks as there are then.

    torchrun --nproc_per_node 2 ddp.py images.yaml:train --state run.pt
    torchrun --nproc_per_node 3 ddp.py images.yaml:train --state run.pt

The argument is a pipeline as pinfeed.Loader takes it: a YAML file, or one of several in it; images.yaml is beside this script.
Nothing has to run before. The loader takes rank and world size from the process group. Its state is the same on all ranks
after each step, so rank 0 saves it, and every sample of the epoch still comes once.

Debian 12 has a torch (1.13) whose torchrun does not know its Python (3.11). There it wants `torchrun --redirects 1 --tee 1
--nproc_per_node 2 ...`; or start the ranks by hand, each with RANK=0 (1, ...) WORLD_SIZE=2 LOCAL_WORLD_SIZE=2
MASTER_ADDR=127.0.0.1 MASTER_PORT=29500.
"""

import argparse
import os

import torch
from torch import distributed, nn

import pinfeed
from train_images import make_model


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('pipeline', help='FILE.yaml, or FILE.yaml:NAME')
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--rate', type=float, default=0.01, help='learning rate')
    parser.add_argument('--state', help='file to save to after each step, and to go on from if it is there')
    return parser.parse_args()


class Run:
    """A training run: what is saved, and goes on on any number of ranks."""

    def __init__(self, options):
        torch.manual_seed(0)  # the same network on all ranks
        self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), options.rate, momentum=0.9)
        # The name makes the ranks of this run a group: they begin together, and one that does not come is named.
        self.loader = pinfeed.Loader(options.pipeline, group=f"ddp {os.environ['MASTER_PORT']}", with_info=True)
        self.counted = {'rows': 0, 'loss': 0.0}  # of this epoch, over all ranks
        self.sums = torch.zeros(2, dtype=torch.float64)  # of a step; one for all, see main
        self.path = options.state

    def load(self):
        if not self.path or not os.path.exists(self.path):
            return
        state = torch.load(self.path)
        self.model.load_state_dict(state['model'])
        self.optimizer.load_state_dict(state['optimizer'])
        self.loader.load_state_dict(state['loader'])
        if state['loader']['row'] > 0:  # else it was saved by the last step of an epoch
            self.counted = state['counted']
        self.say('goes on: epoch {epoch}, row {row}'.format(**state['loader']))

    def save(self):
        """By one rank, after a step. The old file is there until the new one is whole."""
        if not self.path or self.loader.rank != 0:
            return
        torch.save({'model': self.model.state_dict(), 'optimizer': self.optimizer.state_dict(),
                    'loader': self.loader.state_dict(), 'counted': self.counted}, self.path + '.new')
        os.replace(self.path + '.new', self.path)

    def say(self, text):
        if self.loader.rank == 0:
            print(text, flush=True)

    def train_epoch(self, epoch, trained):
        for (images, labels), info in self.loader:
            # Where the rows of the last step do not suffice for all ranks, some are there only so that the ranks have
            # equally many; they are no new samples, and have no weight. No rank may have none that counts: + 1e-9.
            losses = nn.functional.cross_entropy(trained(images), labels, reduction='none') * info.valid
            self.optimizer.zero_grad()
            (losses.sum() / (info.valid.sum() + 1e-9)).backward()
            self.optimizer.step()
            self.count(losses, info.valid)
            self.save()
        self.say('epoch {}: {rows} of {} samples, loss {:.3f}'.format(
            epoch, len(self.loader.dataset), self.counted['loss'] / self.counted['rows'], **self.counted))
        self.counted = {'rows': 0, 'loss': 0.0}

    def count(self, losses, valid):
        torch.stack([losses.detach().sum().double(), valid.sum().double()], out=self.sums)
        distributed.all_reduce(self.sums)
        loss, rows = self.sums.tolist()
        self.counted = {'rows': self.counted['rows'] + int(rows), 'loss': self.counted['loss'] + loss}


def main():
    options = arguments()
    distributed.init_process_group('gloo')  # before the loader, which asks it
    run = Run(options)
    run.load()
    trained = nn.parallel.DistributedDataParallel(run.model)
    for epoch in range(run.loader.state_dict()['epoch'], options.epochs):
        run.train_epoch(epoch, trained)
    # The group goes while each tensor of ours that it has reduced is still there. Otherwise a thread of torch 1.13's may be
    # the last to have one, and wait for the interpreter's lock, whose owner waits for that thread.
    del trained
    distributed.destroy_process_group()


if __name__ == '__main__':
    main()
