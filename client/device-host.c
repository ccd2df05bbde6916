/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* No device: batches stay in the ring, where the caller reads them. */

#include "client/device.h"

#include "base/fault.h"

#include <errno.h>
#include <string.h>

static int host_open(struct device *device, const char *text, const char *runtime, struct fault *fault) {
        if (*text)
                return fault_set(fault, -EINVAL, "device is 'cpu:%.64s', expected cpu, of which there is one",
                                 text);
        strcpy(device->name, "cpu");
        return 0;
}

const struct device_backend device_host = {.name = "cpu", .open = host_open};
