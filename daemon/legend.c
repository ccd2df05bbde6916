/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The legend of a batch: how to bring the values of its images back to pixels, and what its labels are
 * called. The first stands in the recipe. The second is in the index of the scan, from which names are read
 * one by one, as for error messages; it is a file in memory, so that takes no longer than any other answer.
 */

#include "daemon/legend.h"

#include "base/fault.h"
#include "daemon/pipeline.h"
#include "proto/index.h"

#include <errno.h>
#include <string.h>

/* Values are ((pixel / 255) - mean) / std, also where the recipe does not normalize. null: no images of ours.
 */
static json_t *make_pixels(const struct recipe *recipe) {
        double mean[3] = {0, 0, 0}, std[3] = {1, 1, 1};

        if (recipe->source.type != RECIPE_IMAGEFOLDER)
                return json_null();
        for (uint32_t i = 0; i < recipe->n_transforms; i++) {
                if (recipe->transforms[i].type != RECIPE_NORMALIZE)
                        continue;
                memcpy(mean, recipe->transforms[i].mean, sizeof(mean));
                memcpy(std, recipe->transforms[i].std, sizeof(std));
        }
        return json_pack("{s:[f, f, f], s:[f, f, f]}", "mean", mean[0], mean[1], mean[2], "std", std[0],
                         std[1], std[2]);
}

/* null: no number, or none of a class. */
static json_t *make_class(const struct pipeline *pipeline, const json_t *label) {
        char name[MESSAGE_FILE_MAX + 1], clean[MESSAGE_FILE_MAX + 1];

        if (!json_is_integer(label) || pipeline->index_fd < 0 ||
            index_read_class(pipeline->index_fd, (uint64_t)json_integer_value(label), name, sizeof(name)) < 0)
                return json_null();
        fault_sanitize(clean, sizeof(clean), name, strlen(name));
        return json_string(clean);
}

json_t *legend_make(const struct pipeline *pipeline, const json_t *labels, struct fault *fault) {
        json_t *classes, *legend;

        if (!json_is_array(labels) || json_array_size(labels) > LEGEND_LABELS_MAX) {
                fault_set(fault, -EINVAL, "legend wants \"labels\", an array of at most %d whole numbers",
                          LEGEND_LABELS_MAX);
                return NULL;
        }
        classes = json_array();
        for (size_t i = 0; i < json_array_size(labels); i++)
                json_array_append_new(classes, make_class(pipeline, json_array_get(labels, i)));
        legend = json_pack("{s:s, s:o, s:o}", "pipeline", pipeline->label, "pixels",
                           make_pixels(&pipeline->config->recipe), "classes", classes);
        if (!legend)
                fault_set(fault, -ENOMEM, "no memory for the legend");
        return legend;
}
