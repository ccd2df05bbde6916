/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A training job as somebody else would write it: one header, and what pkg-config says. Reads an epoch of the
 * pipeline and prints its rows. */

#include <pinfeed.h>

#include <stdio.h>

int main(int argc, char **argv) {
        struct pinfeed_attach attach = {.size = sizeof(attach), .pipeline = argc > 1 ? argv[1] : ""};
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;
        unsigned long sum = 0;
        int r = pinfeed_open(&job, &attach);

        while (r >= 0 && (r = pinfeed_next(job, &batch)) > 0) {
                sum += pinfeed_batch_rows(batch);
                pinfeed_batch_release(batch);
        }
        if (r < 0)
                fprintf(stderr, "%s\n", pinfeed_error(job));
        else
                printf("%lu\n", sum);
        pinfeed_close(job);
        return r < 0;
}
