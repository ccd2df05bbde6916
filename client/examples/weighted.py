#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A rare class drawn as often as a common one, by torch's WeightedRandomSampler.

    weighted.py

The sampler runs in this process, once an epoch; its order goes to the workers.
"""

import torch
from torch.utils.data import TensorDataset, WeightedRandomSampler

import pinfeed


def main():
    labels = (torch.arange(2000) % 20 == 0).long()  # one in twenty
    dataset = TensorDataset(torch.randn(2000, 16), labels)
    weights = 1 / torch.bincount(labels)[labels]
    sampler = WeightedRandomSampler(weights, num_samples=1000, generator=torch.Generator().manual_seed(7))
    loader = pinfeed.DataLoader(dataset, batch_size=50, sampler=sampler, num_workers=2)
    for epoch in range(3):
        counts = torch.zeros(2, dtype=torch.int64)
        for _, batch in loader:
            counts += torch.bincount(batch, minlength=2)
        print(f'epoch {epoch}: {counts[0]} of class 0, {counts[1]} of class 1')


if __name__ == '__main__':
    main()
