/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The interpreter is the user's, with the user's packages; the worker in it has to be this daemon's, for the
 * two have no versions between them. `python -m pinfeed.worker` would take whatever pinfeed the interpreter
 * has, if any. A PYTHONPATH with our directory would come before the interpreter's own packages, and where we
 * lie among a distribution's packages it would replace them all. So a few words of Python load exactly one
 * package from exactly one place, and leave the ways that modules are looked for as they were, but for the
 * working directory: what lies there by chance is no module.
 *
 * Where no package of ours is found, -m has to do. */

#include "daemon/interpreter.h"

#include "base/program.h"

#include <string.h>

static const char bootstrap[] = "import importlib.util as u, sys\n"
                                "place = sys.argv.pop(1)\n"
                                "sys.path[:] = [path for path in sys.path if path]\n"
                                "spec = u.spec_from_file_location('pinfeed', place + '/__init__.py')\n"
                                "sys.modules['pinfeed'] = package = u.module_from_spec(spec)\n"
                                "spec.loader.exec_module(package)\n"
                                "from pinfeed import worker\n"
                                "worker.main()\n";

static void take(const char *to[INTERPRETER_ARGUMENTS_MAX], const struct interpreter *interpreter,
                 const char *program, const char *last) {
        const char *const ours[] = {program, "-c", bootstrap, interpreter->package, last, NULL};
        const char *const theirs[] = {program, "-m", "pinfeed.worker", last, NULL, NULL};

        memcpy(to, *interpreter->package ? ours : theirs, sizeof(ours));
}

void interpreter_init(struct interpreter *interpreter, const char *program) {
        static const char *const places[] = {PINFEED_PACKAGE, NULL};

        if (program_find_file(interpreter->package, places, "worker.py") < 0)
                interpreter->package[0] = 0;
        take(interpreter->arguments, interpreter, program, NULL);
        take(interpreter->describe, interpreter, program, "--describe");
}
