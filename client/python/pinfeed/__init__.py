# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""pinfeed: training data that is loaded and preprocessed once per machine.

    import pinfeed

    loader = pinfeed.Loader("imagenet")  # a pipeline of the daemon's configuration
    for images, labels in loader:        # one epoch
        ...

docs/python.md is the contract. Importing this costs a few milliseconds: torch and NumPy are imported when a loader is made
that gives their arrays, and not before.
"""

from ._pinfeed import Array
from ._pinfeed import version as __version__
from .control import status
from .dataloader import DataLoader
from .epoch import Info
from .errors import Disconnected, Error, Invalid, NotFound, NotNative, Refused, SampleError, Stale, Timeout
from .loader import Loader
from .native import native
from .randomness import sample_rng

__all__ = ['Array', 'DataLoader', 'Disconnected', 'Error', 'Info', 'Invalid', 'Loader', 'NotFound', 'NotNative', 'Refused',
           'SampleError', 'Stale', 'Timeout', '__version__', 'native', 'sample_rng', 'status']
