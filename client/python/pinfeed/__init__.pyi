# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0

import os
from typing import Any, Callable, Dict, Iterable, Iterator, Literal, NamedTuple, Optional, Sequence, Sized, Union

from ._pinfeed import Array as Array

__version__: str

class Error(RuntimeError):
    errno: int

class Timeout(Error, TimeoutError): ...
class NotFound(Error, FileNotFoundError): ...
class Disconnected(Error, ConnectionError): ...
class Refused(Error, PermissionError): ...
class Invalid(Error, ValueError): ...
class Stale(Error, ValueError): ...

class SampleError(Error):
    """Also an instance of what a dataset in Python has raised, where that type is known here."""

    sample: Optional[int]
    batch: Optional[int]
    worker: Optional[int]
    pid: Optional[int]
    file: Optional[str]
    exception: Optional[str]
    traceback: Optional[str]

class NotNative(Error, TypeError):
    reason: str
    def __init__(self, reason: str) -> None: ...

class Info(NamedTuple):
    ids: Any
    valid: Any
    epoch: int
    row: int

class Sampler:
    def set_epoch(self, epoch: int) -> None: ...

class Loader:
    pipeline: str
    dataset: Sized
    def __init__(
        self,
        pipeline: Union[str, "os.PathLike[str]", Dict[str, Any]],
        *,
        batch_size: Optional[int] = None,
        device: Any = None,
        pin: Literal["auto", "require", "never"] = "auto",
        pin_memory: bool = False,
        seed: Union[int, Literal["torch"], None] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        process_group: Any = None,
        group: Optional[str] = None,
        start: Literal["epoch", "live"] = "epoch",
        gather: int = 1,
        gather_timeout: Optional[float] = 120,
        last_batch: Optional[Literal["short", "drop", "pad"]] = None,
        drop_last: Optional[bool] = None,
        fields: Optional[Sequence[str]] = None,
        with_info: bool = False,
        max_held_batches: int = 4,
        zero_copy: bool = False,
        timeout: Optional[float] = 300,
        reconnect: float = 60,
        runtime_dir: Union[str, "os.PathLike[str]", None] = None,
        output: Literal["auto", "torch", "numpy", "dlpack"] = "auto",
    ) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> "Loader": ...
    def __exit__(self, *unused: Any) -> None: ...
    @property
    def remaining(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def drop_last(self) -> bool: ...
    @property
    def seed(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def sampler(self) -> Sampler: ...
    def set_epoch(self, epoch: int) -> None: ...
    def state_dict(self) -> Dict[str, Union[str, int]]: ...
    def load_state_dict(self, state: Dict[str, Any], *, force: bool = False) -> None: ...
    def stats(self) -> Dict[str, Any]: ...
    def close(self) -> None: ...

class DataLoader:
    dataset: Any
    batch_size: Optional[int]
    num_workers: int
    collate_fn: Callable[..., Any]
    pin_memory: bool
    drop_last: bool
    timeout: float
    worker_init_fn: Optional[Callable[[int], Any]]
    multiprocessing_context: Any
    generator: Any
    prefetch_factor: Optional[int]
    persistent_workers: bool
    pin_memory_device: str
    in_order: bool
    batch_sampler: Any
    def __init__(
        self,
        dataset: Any,
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        sampler: Optional[Iterable[int]] = None,
        batch_sampler: Optional[Iterable[Sequence[int]]] = None,
        num_workers: int = 0,
        collate_fn: Optional[Callable[..., Any]] = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Optional[Callable[[int], Any]] = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: Optional[int] = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        native: Union[bool, Literal["auto"]] = "auto",
        share: Optional[str] = None,
        seed: Optional[int] = None,
        device: Any = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        on_error: Literal["fail", "replace"] = "fail",
        max_held_batches: int = 4,
        zero_copy: bool = False,
        sample_timeout: float = 60,
        max_errors: float = 0.001,
        batch_bytes: Optional[int] = None,
    ) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> "DataLoader": ...
    def __exit__(self, *unused: Any) -> None: ...
    @property
    def remaining(self) -> int: ...
    @property
    def pipeline(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def sampler(self) -> Any: ...
    def set_epoch(self, epoch: int) -> None: ...
    def state_dict(self) -> Dict[str, Union[str, int]]: ...
    def load_state_dict(self, state: Dict[str, Any], *, force: bool = False) -> None: ...
    def stats(self) -> Dict[str, Any]: ...
    def close(self) -> None: ...

def sample_rng() -> Any: ...
def status(runtime_dir: Union[str, "os.PathLike[str]", None] = None) -> Dict[str, Any]: ...
def native(dataset: Any, batch_size: int = 1, **keys: Any) -> Dict[str, Any]: ...
