#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Samples of different sizes, as in detection: a dict with an image and any number of boxes, put together by a collate_fn.

    detection.py

The images are padded to the largest of their batch, the boxes stay a list. The function runs in the workers, and its result,
whatever it is, comes to the loop as it was returned.
"""

import torch

import pinfeed


class Shapes(torch.utils.data.Dataset):
    """Grey images with white rectangles, drawn from torch's random numbers, which are the same for a sample in an epoch
    whichever worker draws it."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        height, width = (48 + 8 * torch.randint(0, 7, (2,))).tolist()
        image = torch.full((3, height, width), 0.5)
        boxes = []
        for _ in range(int(torch.randint(1, 5, ()))):
            top, left = int(torch.randint(0, height - 16, ())), int(torch.randint(0, width - 16, ()))
            image[:, top:top + 16, left:left + 16] = 1
            boxes.append([left, top, left + 16, top + 16])
        return {'image': image, 'boxes': torch.tensor(boxes, dtype=torch.float32), 'name': f'shape-{index}'}


def collate(samples):
    height = max(sample['image'].shape[1] for sample in samples)
    width = max(sample['image'].shape[2] for sample in samples)
    images = torch.zeros(len(samples), 3, height, width)
    for padded, sample in zip(images, samples):
        _, h, w = sample['image'].shape
        padded[:, :h, :w] = sample['image']
    return images, [sample['boxes'] for sample in samples], [sample['name'] for sample in samples]


def main():
    loader = pinfeed.DataLoader(Shapes(), batch_size=16, shuffle=True, num_workers=2, collate_fn=collate)
    for epoch in range(2):
        boxes = rows = 0
        for images, targets, names in loader:
            rows += len(names)
            boxes += sum(len(target) for target in targets)
        print(f'epoch {epoch}: {rows} images, {boxes} boxes, the last batch {tuple(images.shape)}, {names[-1]}')


if __name__ == '__main__':
    main()
