#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A training script of the demo (demo_torch.py), with either loader; all else is the same.

    demo_trainer.py torch|pinfeed FOLDER [--rate R] [--epochs N] [--workers N]

Prints a line of JSON now and then, and a last one with `done`. With pinfeed it looks at the sample numbers as well: each image
once in each epoch, whatever is killed meanwhile.
"""

import argparse
import json
import os
import random
import time

import torch
from torch import nn

from train_images import make_model

SIZE = 64
BATCH = 32
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SAY_S = 0.1


def pinfeed_loader(options):
    import pinfeed

    return pinfeed.Loader({
        'name': 'scenes',
        'source': {'type': 'imagefolder', 'path': options.folder},
        'transforms': [{'random_resized_crop': {'size': SIZE}}, 'random_horizontal_flip',
                       {'normalize': {'mean': MEAN, 'std': STD}}],
        'batch_size': BATCH,
        'shuffle': True,
    }, with_info=True)


class Folder(torch.utils.data.Dataset):
    """What torchvision does, where there is Pillow only."""

    def __init__(self, folder):
        self.files = [(os.path.join(folder, name, file), label) for label, name in enumerate(sorted(os.listdir(folder)))
                      for file in sorted(os.listdir(os.path.join(folder, name)))]
        self.mean, self.std = (torch.tensor(x).view(3, 1, 1) for x in (MEAN, STD))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        import numpy
        from PIL import Image

        file, label = self.files[index]
        image = Image.open(file).convert('RGB')
        scale, ratio = random.uniform(0.08, 1), random.uniform(3 / 4, 4 / 3)
        area = image.width * image.height * scale
        width, height = min((area * ratio) ** 0.5, image.width), min((area / ratio) ** 0.5, image.height)
        left, top = random.uniform(0, image.width - width), random.uniform(0, image.height - height)
        image = image.resize((SIZE, SIZE), Image.BILINEAR, (left, top, left + width, top + height))
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        return (torch.from_numpy(numpy.array(image)).permute(2, 0, 1) / 255 - self.mean) / self.std, label


def torch_loader(options):
    try:
        from torchvision import datasets, transforms
    except ImportError:
        dataset = Folder(options.folder)
    else:
        dataset = datasets.ImageFolder(options.folder, transforms.Compose([
            transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
            transforms.Normalize(MEAN, STD)]))
    return torch.utils.data.DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=options.workers,
                                       persistent_workers=True)


class Report:
    def __init__(self):
        self.began = time.time()
        self.said = self.first = 0
        self.rows = 0
        self.losses = []  # of each epoch: sum, rows

    def batch(self, epoch, loss, rows):
        self.first = self.first or time.time()
        if len(self.losses) <= epoch:
            self.losses.append([0.0, 0])
        self.losses[epoch][0] += loss * rows
        self.losses[epoch][1] += rows
        self.rows += rows
        if time.time() >= self.said + SAY_S:
            self.said = time.time()
            print(json.dumps({'epoch': epoch, 'rows': self.rows}), flush=True)

    def end(self, **more):
        losses = [total / rows for total, rows in self.losses]
        print(json.dumps({'done': True, 'epoch': len(losses) - 1, 'rows': self.rows, 'began': self.began, 'ended': time.time(),
                          'first_batch_s': self.first - self.began, 'first_loss': losses[0], 'last_loss': losses[-1], **more}),
              flush=True)


def check_once(samples, ids):
    if sorted(ids) != list(range(samples)):
        raise SystemExit(f'an epoch had {len(ids)} rows with {len(set(ids))} samples of {samples}')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('loader', choices=['torch', 'pinfeed'])
    parser.add_argument('folder')
    parser.add_argument('--rate', type=float, default=0.01)
    parser.add_argument('--epochs', type=int, default=1)
    parser.add_argument('--workers', type=int, default=2, help="the DataLoader's")
    options = parser.parse_args()
    torch.set_num_threads(1)  # four scripts want the processors
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), options.rate, momentum=0.9)

    report = Report()
    loader = pinfeed_loader(options) if options.loader == 'pinfeed' else torch_loader(options)
    for epoch in range(options.epochs):
        ids = []
        for batch in loader:
            if options.loader == 'pinfeed':
                batch, info = batch
                ids += info.ids.tolist()
            images, labels = batch
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            report.batch(epoch, loss.item(), len(labels))
        if options.loader == 'pinfeed':
            check_once(len(loader.dataset), ids)
    report.end(**({'reconnects': loader.stats()['reconnects']} if options.loader == 'pinfeed' else {}))


if __name__ == '__main__':
    main()
