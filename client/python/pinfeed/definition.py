# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What a loader is asked to read: a name, a file, or a dict.

A name is a pipeline of the configuration that a daemon was started with. A file or a dict is the pipeline itself, and goes
to a private daemon, which is started if none is there. The daemon is the one that understands it: here a file is read and
a dict written as JSON, which is YAML too, and nothing is looked at but what names need.
"""

import errno
import json
import os
import re
from typing import NamedTuple, Optional

from . import programs
from .errors import invalid, make

_SUFFIXES = ('.yaml', '.yml')
_NAME_MAX = 64
_DICT = '(a dict)'  # in place of a file's name
_NOT_IN_NAMES = re.compile(r'[^A-Za-z0-9._-]+')


class Definition(NamedTuple):
    """Arguments of an attach."""

    pipeline: Optional[str]  # None: the only one of the definition
    definition: Optional[str]
    definition_file: Optional[str]
    daemon: Optional[str]  # the program to start when none is there

    @property
    def words(self):
        """For people, before the daemon has said a name."""
        return self.pipeline or os.path.basename(self.definition_file)

    def reworded(self, error):
        """The daemon tells line and column of the JSON that a dict has become: the key is what its writer knows."""
        if not self.definition_file or os.path.basename(self.definition_file) != _DICT:
            return error
        text = re.sub(rf'^{re.escape(self.definition_file)}:\d+:\d+: (pipelines\.[^.:]+\.)?', 'pipeline: ', str(error))
        return make(error.errno, text)


def read(pipeline):
    """The Definition that the first argument of a Loader stands for."""
    if isinstance(pipeline, dict):
        return _of_dict(pipeline)
    if isinstance(pipeline, os.PathLike):
        return _of_file(os.fspath(pipeline), None)
    if not isinstance(pipeline, str):
        raise TypeError(f'pipeline: expected a name, the path of a YAML file or a dict, got {type(pipeline).__name__}')
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
    return Definition(name, text, path, _daemon())


def _of_dict(pipeline):
    """One pipeline, as it stands in a configuration below its name; or a whole `pipelines:` document with one."""
    if 'pipelines' in pipeline:
        return Definition(None, _as_json(pipeline), os.path.join(os.getcwd(), _DICT), _daemon())
    pipeline = dict(pipeline)
    name = pipeline.pop('name', None) or _name_from(pipeline.get('source'))
    return Definition(name, _as_json({'pipelines': {name: pipeline}}), os.path.join(os.getcwd(), _DICT), _daemon())


def _name_from(source):
    """A name to show: the last part of the path that samples come from, or the type of their source."""
    name = ''
    if isinstance(source, dict):
        name = os.path.basename(os.path.normpath(os.fspath(source.get('path') or source.get('type', ''))))
    return _NOT_IN_NAMES.sub('_', name)[:_NAME_MAX].strip('.') or 'pipeline'


def _as_json(document):
    """A line for each key, so that the line which an error tells says something."""
    try:
        return json.dumps(document, indent=1, default=_as_text)
    except (TypeError, ValueError) as error:
        raise invalid(f'pipeline: a dict of plain numbers, texts, lists and dicts was expected: {error}') from None


def _as_text(value):
    return os.fspath(value)


def _daemon():
    program = programs.find('pinfeedd')
    if program is None:
        raise make(errno.ENOENT, 'a pipeline that is given as a file or a dict needs pinfeedd, which is neither beside this '
                                 'package nor on the PATH: install pinfeed whole, or give the name of a pipeline of a '
                                 'daemon that runs')
    return program
