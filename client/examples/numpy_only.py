#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Mean and standard deviation of each channel of an image folder, without torch: what `normalize` wants.

    numpy_only.py FOLDER

FOLDER has a directory of JPEG files for each class. The arrays are views of shared memory, so nothing is copied.
"""

import argparse

import numpy

import pinfeed


def pipeline(folder):
    return {
        'source': {'type': 'imagefolder', 'path': folder},
        'transforms': [{'resize': {'size': 224}}, {'center_crop': {'size': 224}}],
        'output': {'dtype': 'float32'},  # 0 to 1
        'batch_size': 32,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('folder')
    count, total, squares = 0, 0.0, 0.0
    with pinfeed.Loader(pipeline(parser.parse_args().folder), fields=['images']) as loader:
        for batch in loader:
            images = batch['images']
            count += images.size // images.shape[1]
            total = total + images.sum(axis=(0, 2, 3), dtype=numpy.float64)
            squares = squares + (images * images).sum(axis=(0, 2, 3), dtype=numpy.float64)
            del batch, images  # or they would keep their place in the ring while the next ones are waited for
        waited = loader.stats()['wait_s']
    mean = total / count
    print('mean', *mean.round(4), 'std', *numpy.sqrt(squares / count - mean * mean).round(4), f'waited {waited:.1f} s')


if __name__ == '__main__':
    main()
