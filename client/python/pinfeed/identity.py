# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Names what a dataset's samples come from: its code, its length, and who says their order.

Scripts that share must agree on it, and a saved state is of one such name. So it is the same in every run of a script, and
another one when the code was edited. What a dataset holds is not looked at: that may be large, or on a network.
"""

import hashlib
import inspect
import linecache
import types

from . import forks


def of(dataset, collate_fn, order):
    sum = hashlib.sha256()
    _add(sum, type(dataset))
    for _, value in forks.walk(dataset):
        if hasattr(type(value), '__getitem__') and _is_code(value):
            _add(sum, type(value))
    if collate_fn is not None:
        _add(sum, collate_fn if isinstance(collate_fn, types.FunctionType) else type(collate_fn))
    sum.update(f'{type(order).__name__} {order.rows} {order.shuffle}'.encode())
    return sum.hexdigest()


def _is_code(value):
    """A class of somebody's, not a list, an array or a tensor."""
    root, _, rest = type(value).__module__.partition('.')
    return root not in ('builtins', 'collections', 'numpy') and not (root == 'torch' and not rest.startswith('utils.data'))


def _add(sum, code):
    """A class, by its functions, or a function: by their source text, or, where that is not to be had, by what the compiler has
    made of it."""
    sum.update(f'{code.__module__}.{code.__qualname__}\n'.encode())
    for function in _functions(code):
        text = _text(function.__code__)
        if text:
            sum.update(text.encode(errors='surrogateescape'))
        else:
            _add_code(sum, function.__code__)


def _text(code):
    """Of a function. inspect.getsource() would look through all modules that are loaded, for some milliseconds."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1:]
    return ''.join(inspect.getblock(lines)) if lines else None


def _functions(code):
    if isinstance(code, types.FunctionType):
        return [code]
    return [value for _, value in sorted(vars(code).items()) if isinstance(value, types.FunctionType)]


def _add_code(sum, code):
    sum.update(code.co_code)
    sum.update(' '.join(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _add_code(sum, constant)
        elif isinstance(constant, (str, bytes, int, float, complex, type(None))):  # others have no fixed order
            sum.update(repr(constant).encode(errors='surrogatepass'))
