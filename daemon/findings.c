/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Workers finish in any order, so a list of the first that were told would be another one each time. Listed
 * are those with the lowest numbers instead, in order, and the list of a data set is always the same. All are
 * counted, by the same set of numbers as a pipeline's bad samples (ledger.h).
 *
 * Memory that is short costs an entry of the list and never a count: a verification that took hours shall not
 * fail for a kilobyte. */

#include "daemon/findings.h"

#include "daemon/verdicts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int findings_init(struct findings *findings, const struct verdicts *verdicts) {
        size_t n = verdicts_count_lasting(verdicts);

        ledger_init(&findings->bad);
        findings->listed = calloc(FINDINGS_LISTED_MAX, sizeof(*findings->listed));
        findings->condemned = calloc(n + 1, sizeof(*findings->condemned)); /* never of 0 bytes */
        findings->is_bad = calloc(n + 1, sizeof(*findings->is_bad));
        if (!findings->listed || !findings->condemned || !findings->is_bad) {
                findings_deinit(findings);
                return -ENOMEM;
        }
        for (size_t i = 0; i < verdicts->n; i++)
                if (!verdicts->list[i].lifted)
                        findings->condemned[findings->n_condemned++] = verdicts->list[i].sample;
        return 0;
}

static void finding_deinit(struct finding *finding) {
        free(finding->file);
        free(finding->text);
}

void findings_deinit(struct findings *findings) {
        for (uint32_t i = 0; i < findings->n_listed; i++)
                finding_deinit(&findings->listed[i]);
        free(findings->listed);
        free(findings->condemned);
        free(findings->is_bad);
        ledger_deinit(&findings->bad);
        *findings = (struct findings){};
}

/* Marks it when it is condemned, and says whether. */
static bool mark_condemned(struct findings *findings, uint64_t sample) {
        uint32_t low = 0, high = findings->n_condemned;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (findings->condemned[middle] < sample)
                        low = middle + 1;
                else
                        high = middle;
        }
        if (low == findings->n_condemned || findings->condemned[low] != sample)
                return false;
        findings->is_bad[low] = true;
        return true;
}

static void list(struct findings *findings, const struct finding *finding) {
        struct finding *listed = findings->listed;
        uint32_t place = findings->n_listed;

        while (place > 0 && listed[place - 1].sample > finding->sample)
                place--;
        if (findings->n_listed == FINDINGS_LISTED_MAX)
                finding_deinit(&listed[--findings->n_listed]); /* not this one: see findings_add */
        memmove(&listed[place + 1], &listed[place], (findings->n_listed - place) * sizeof(*listed));
        listed[place] = *finding;
        findings->n_listed++;
}

void findings_add(struct findings *findings, uint64_t sample, int error, const char *file, const char *text) {
        struct finding finding = {.sample = sample, .condemned = mark_condemned(findings, sample)};

        if (!ledger_add(&findings->bad, sample, error, "", ""))
                return;
        if (findings->n_listed == FINDINGS_LISTED_MAX &&
            sample > findings->listed[FINDINGS_LISTED_MAX - 1].sample)
                return;
        finding.file = strdup(file);
        finding.text = strdup(text);
        if (finding.file && finding.text)
                list(findings, &finding);
        else
                finding_deinit(&finding);
}

uint32_t findings_take_good(struct findings *findings) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < findings->n_condemned; i++)
                if (!findings->is_bad[i])
                        findings->condemned[n++] = findings->condemned[i];
        return n;
}
