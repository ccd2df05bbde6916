#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""article_before.py with pinfeed: the import of DataLoader has changed, and nothing else.

    article_after.py

Started twice at once, each copy prepares its own samples; with share="article" in the call they are prepared once for both.
"""

import time

import torch
from pinfeed import DataLoader
from torch.utils.data import Dataset


class DummyDataset(Dataset):
    def __init__(self, samples=10000, features=512, classes=10):
        self.features = torch.randn(samples, features)
        self.labels = torch.randint(0, classes, (samples,))

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        time.sleep(0.0001)  # a file that is read and decoded
        return self.features[index], self.labels[index]


def main():
    torch.manual_seed(0)  # the same data in each copy
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    loader = DataLoader(DummyDataset(), batch_size=128, shuffle=True, num_workers=4, pin_memory=True)
    model = torch.nn.Sequential(torch.nn.Linear(512, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = torch.nn.CrossEntropyLoss()

    for epoch in range(3):
        began = time.perf_counter()
        for features, labels in loader:
            features = features.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            optimizer.zero_grad()
            loss = criterion(model(features), labels)
            loss.backward()
            optimizer.step()
        print(f'epoch {epoch}: loss {loss.item():.3f}, {time.perf_counter() - began:.1f} s')


if __name__ == '__main__':
    main()
