/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A device is named as PyTorch names it: the backend, and after a colon what that backend makes of it. A new
 * backend is a file and a line here. */

#include "client/device.h"

#include "base/fault.h"

#include <errno.h>
#include <string.h>

static const struct device_backend *const backends[] = {&device_host, &device_cuda};

int device_open(struct device *device, const char *name, const char *runtime, struct fault *fault) {
        size_t length;

        if (!name || !*name)
                name = device_host.name;
        length = strcspn(name, ":");
        for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
                const struct device_backend *backend = backends[i];

                if (strlen(backend->name) != length || memcmp(backend->name, name, length) != 0)
                        continue;
                *device = (struct device){.backend = backend};
                return backend->open(device, name[length] ? name + length + 1 : "", runtime, fault);
        }
        return fault_set(fault, -EINVAL, "device is '%.64s', expected cpu, cuda or cuda:N", name);
}
