#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Mean and standard deviation of each channel of a pipeline's images, without torch: what `normalize` wants.

    numpy_only.py PIPELINE

Give it a pipeline without normalize. The arrays are views of the ring, so nothing is copied.
"""

import sys

import numpy

import pinfeed


def main():
    count, total, squares = 0, 0.0, 0.0
    with pinfeed.Loader(sys.argv[1], fields=['images'], last_batch='short') as loader:
        for batch in loader:
            images = batch['images'].astype(numpy.float64)
            count += images.size // images.shape[1]
            total = total + images.sum(axis=(0, 2, 3))
            squares = squares + (images * images).sum(axis=(0, 2, 3))
            del batch  # or it would keep its slot while the next one is waited for
        waited = loader.stats()['wait_s']
    mean = total / count
    print('mean', *mean.round(4), 'std', *numpy.sqrt(squares / count - mean * mean).round(4), f'waited {waited:.1f} s')


if __name__ == '__main__':
    main()
