# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What a loader is asked to read: a name, a file, or a dict.

A name is a pipeline of the configuration that a daemon was started with. A file or a dict is the pipeline itself, and goes
to a private daemon, which is started if none is there. The daemon is the one that understands it: here a file is read and
a dict written as JSON, which is YAML too, and nothing is looked at but what names need.
"""

import collections
import errno
import os
import re

from . import programs
from .errors import invalid, make

_SUFFIXES = ('.yaml', '.yml')
NAME_MAX = 64
_DICT = '(a dict)'  # in place of a file's name
_NOT_IN_NAMES = re.compile(r'[^A-Za-z0-9._-]+')


class Definition(collections.namedtuple('Definition', 'pipeline definition definition_file daemon')):
    """Arguments of an attach. No `pipeline`: the only one of the definition; `daemon`: the program to start when none is
    there; all but `pipeline` are None for a name."""

    @property
    def words(self):
        """For people, before the daemon has said a name."""
        return self.pipeline or os.path.basename(self.definition_file)

    def reworded(self, error):
        """The daemon tells line and column of the JSON that a dict has become: the key is what its writer knows."""
        if not self.definition_file or os.path.basename(self.definition_file) != _DICT:
            return error
        text = re.sub(rf'^{re.escape(self.definition_file)}:\d+:\d+: ', 'pipeline: ', str(error))
        text = re.sub(rf'{re.escape(self.definition_file)}(:\d+)*', 'the dict', text)
        if self.pipeline:
            text = text.replace(f'pipelines.{self.pipeline}.', '', 1).replace('pipeline: pipelines: ', 'pipeline: name: ')
        return make(error.errno, text)


def read(pipeline):
    """The Definition that the first argument of a Loader stands for."""
    if isinstance(pipeline, dict):
        return _of_dict(pipeline)
    if isinstance(pipeline, os.PathLike):
        return _of_file(os.fsdecode(pipeline), None)
    if not isinstance(pipeline, str):
        raise TypeError(f'pipeline: expected a name, the path of a YAML file or a dict, got {type(pipeline).__name__}')
    if not pipeline:
        raise invalid('pipeline: expected a name, the path of a YAML file or a dict, got an empty text')
    path, colon, name = pipeline.rpartition(':')
    if colon and path.endswith(_SUFFIXES):
        return _of_file(path, name)
    if '/' in pipeline or pipeline.endswith(_SUFFIXES):
        return _of_file(pipeline, None)
    return Definition(pipeline, None, None, None)


def _of_file(path, name):
    path = os.path.abspath(path)
    try:
        with open(path, encoding='utf-8') as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise invalid(f'pipeline: {path} is no text in UTF-8: {error}') from None
    except OSError as error:
        raise make(error.errno, f'pipeline: {path}: {error.strerror}') from None
    if not text or '\0' in text:
        raise invalid(f"pipeline: {path} {'holds a NUL byte' if text else 'is empty'}: expected YAML that begins with "
                      "'pipelines:', as pinfeed.yaml(5) describes it")
    return Definition(name, text, path, _daemon())


def _of_dict(pipeline):
    """One pipeline, as it stands in a configuration below its name; or a whole `pipelines:` document. In both, `name` says
    what it is called."""
    pipeline = dict(pipeline)
    name = pipeline.pop('name', None)
    if name is not None and not isinstance(name, str):
        raise invalid(f'pipeline: name: expected a text, got {name!r}')
    if 'pipelines' not in pipeline:
        name = name or _name_from(pipeline.get('source'))
        pipeline = {'pipelines': {name: pipeline}}
    return Definition(name, _as_json(pipeline), os.path.join(os.getcwd(), _DICT), _daemon())


def _name_from(source):
    """A name to show: the last part of the path that samples come from, or the type of their source."""
    name = source.get('path') or source.get('type') if isinstance(source, dict) else None
    if not isinstance(name, (str, bytes, os.PathLike)):
        return 'pipeline'
    return legal_name(os.path.basename(os.path.normpath(os.fsdecode(name))))


def legal_name(text):
    """Of a pipeline."""
    return _NOT_IN_NAMES.sub('_', text)[:NAME_MAX].strip('.') or 'pipeline'


def _as_json(document):
    """A line for each key, so that the line which an error tells says something.

    YAML takes the half of a pair that JSON writes for some characters for an error, and others not as they are. So what is
    not ASCII is written in YAML's own way."""
    import json

    try:
        text = json.dumps(document, indent=1, default=_as_plain, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError) as error:
        raise invalid(f'pipeline: expected a dict of plain numbers, texts, lists and dicts: {error}') from None
    return re.sub('[^\\n -~]', lambda character: f'\\U{ord(character.group()):08x}', text)


def _as_plain(value):
    """What NumPy and torch have for numbers and lists of them, and paths."""
    if hasattr(value, 'tolist'):
        return value.tolist()
    if isinstance(value, (bytes, os.PathLike)):
        return os.fsdecode(value)
    raise TypeError(f'got {value!r}')


def _daemon():
    program = programs.find('pinfeedd')
    if program is None:
        raise make(errno.ENOENT, 'a pipeline that is given as a file or a dict needs pinfeedd, which is neither beside this '
                                 'package nor on the PATH: install pinfeed whole, or give the name of a pipeline of a '
                                 'daemon that runs')
    return program
