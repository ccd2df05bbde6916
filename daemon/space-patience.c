/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Long enough for a trainer to end a step, or to save its state, and to notice; shorter than the minute for
 * which loaders look for another daemon unless they are told otherwise. */

#include "daemon/pipeline-internal.h"

uint64_t pipeline_space_patience_ms(void) {
        return 30000;
}
