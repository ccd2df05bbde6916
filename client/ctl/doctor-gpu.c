/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The driver, the runtime, and the jobs that want their slots page-locked. A machine without a GPU is a fine
 * machine. What needs attention is what somebody has asked for and not got, and what is there and does not
 * work:
 *
 *   - a job that wanted its slots page-locked and has not got that, with what it said why;
 *   - a CUDA runtime or devices that are missing where there is such a job; a runtime that was named and is
 *     none; a driver that the runtime cannot use, or whose devices this user may not open.
 *
 * It looks with the eyes of its own process: a job may have another environment, and a CUDA runtime that came
 * with its Python packages. So where a job has what it wants, what is missing here is no fault. A driver in a
 * bad state may keep whoever calls it, so a child does that. */

#include "client/ctl/doctor.h"

#include "client/ctl/ctl.h"
#include "client/pinfeed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        CUDA_ERROR_NO_DEVICE = 100, /* cudaErrorNoDevice: none is there, or all are hidden */
        CUDA_TIMEOUT_S = 10,        /* a driver that has to load its firmware takes seconds */
};

/* ---- the driver's files ---- */

struct nodes {
        unsigned gpus;
        unsigned refused;
        char first_refused[PATH_MAX];
        unsigned mode, gid;
        int error;
};

/* "nvidia0" is a GPU, "nvidiactl" what all of them are reached by; "nvidia-caps" is none. */
static void take_node(struct nodes *nodes, const char *directory, const char *name) {
        char path[PATH_MAX];
        struct stat status;
        bool is_gpu = name[6] >= '0' && name[6] <= '9';

        if (strncmp(name, "nvidia", 6) != 0 || (!is_gpu && strcmp(name, "nvidiactl") != 0))
                return;
        nodes->gpus += is_gpu;
        snprintf(path, sizeof(path), "%s/%s", directory, name);
        if (faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0)
                return;
        nodes->error = errno;
        if (nodes->refused++ > 0 || stat(path, &status) < 0)
                return;
        snprintf(nodes->first_refused, sizeof(nodes->first_refused), "%s", path);
        nodes->mode = status.st_mode & 07777;
        nodes->gid = status.st_gid;
}

static void find_nodes(const struct doctor *doctor, struct nodes *nodes) {
        char path[PATH_MAX];
        DIR *directory;

        *nodes = (struct nodes){};
        snprintf(path, sizeof(path), "%s/dev", doctor->root);
        directory = opendir(path);
        if (!directory)
                return;
        for (struct dirent *entry; (entry = readdir(directory));)
                take_node(nodes, path, entry->d_name);
        closedir(directory);
}

static void tell_nodes(struct doctor *doctor, const struct nodes *nodes) {
        char remedy[256];

        if (nodes->refused > 0) {
                snprintf(remedy, sizeof(remedy),
                         "make the user a member of the group %u (usermod -aG), and log in again",
                         nodes->gid);
                doctor_find(doctor, DOCTOR_WARNING, "GPU devices", remedy,
                            "user %u may not open %u of them, such as %s: %s (mode %04o, group %u)",
                            (unsigned)geteuid(), nodes->refused, nodes->first_refused, strerror(nodes->error),
                            nodes->mode, nodes->gid);
        } else if (nodes->gpus == 0) {
                doctor_find(doctor, doctor->missed ? DOCTOR_WARNING : DOCTOR_NOTE, "GPU devices",
                            "run nvidia-modprobe, or start the container with --gpus all",
                            "the driver is loaded, and there is no /dev/nvidia0");
        } else {
                doctor_find(doctor, DOCTOR_OK, "GPU devices", NULL, "%u in /dev", nodes->gpus);
        }
}

void doctor_look_at_driver(struct doctor *doctor) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        char version[DOCTOR_SMALL_FILE];
        struct nodes nodes;

        find_nodes(doctor, &nodes);
        if (doctor_read(doctor, version, "/proc/driver/nvidia/version")) {
                version[strcspn(version, "\n")] = 0;
                doctor_find(doctor, DOCTOR_OK, "GPU driver", NULL, "%s", version);
                tell_nodes(doctor, &nodes);
        } else {
                doctor_find(doctor, nodes.gpus > 0 ? DOCTOR_WARNING : DOCTOR_OK, "GPU driver",
                            nodes.gpus > 0 ? "load it with 'modprobe nvidia'" : NULL,
                            "none (no /proc/driver/nvidia/version)%s",
                            nodes.gpus > 0 ? ", and there are devices in /dev" : "");
        }
        if (visible)
                doctor_find(doctor, DOCTOR_NOTE, "hidden GPUs", NULL,
                            "CUDA_VISIBLE_DEVICES is \"%s\": the others are not seen from here", visible);
}

/* ---- the runtime ---- */

static const char *version(char text[NUMBER_TEXT_MAX], uint32_t number) {
        snprintf(text, NUMBER_TEXT_MAX, "%u.%u", number / 1000, number % 1000 / 10);
        return text;
}

static void tell_runtime(struct doctor *doctor, const struct pinfeed_cuda *cuda) {
        const char *named = getenv("PINFEED_LIBCUDART");
        bool wanted = doctor->missed || (named && *named);
        char text[NUMBER_TEXT_MAX];

        if (cuda->runtime > 0)
                doctor_find(doctor, DOCTOR_OK, "CUDA runtime", NULL, "%s, %s", version(text, cuda->runtime),
                            cuda->path);
        else
                doctor_find(doctor, wanted ? DOCTOR_WARNING : DOCTOR_OK, "CUDA runtime",
                            wanted ? "name one in PINFEED_LIBCUDART, or activate the environment of the jobs"
                                   : NULL,
                            "none%s: %s", wanted ? "" : ", which only jobs with a GPU need", cuda->text);
}

static void tell_gpus(struct doctor *doctor, const struct pinfeed_cuda *cuda) {
        char text[NUMBER_TEXT_MAX], driver[NUMBER_TEXT_MAX + 32] = "no driver";
        bool broken = cuda->driver > 0 && cuda->error && cuda->error != CUDA_ERROR_NO_DEVICE;
        bool is_old = broken && cuda->driver < cuda->runtime;

        if (cuda->driver > 0)
                snprintf(driver, sizeof(driver), "the driver serves CUDA %s", version(text, cuda->driver));
        if (cuda->devices > 0)
                doctor_find(doctor, DOCTOR_OK, "GPUs", NULL, "%u, %s", cuda->devices, driver);
        else if (doctor->missed || broken)
                doctor_find(doctor, DOCTOR_WARNING, "GPUs",
                            is_old ? "install a newer driver, or name an older runtime in PINFEED_LIBCUDART"
                                   : "see that nvidia-smi lists them here, or read the kernel's log",
                            "none, %s%s%s", driver, *cuda->text ? ": " : "", cuda->text);
        else
                doctor_find(doctor, DOCTOR_OK, "GPUs", NULL, "none, %s%s%s", driver, *cuda->text ? ": " : "",
                            cuda->text);
}

static void probe(void *context) {
        pinfeed_cuda_probe(context, NULL);
}

void doctor_look_at_cuda(struct doctor *doctor) {
        struct doctor_child child;
        struct pinfeed_cuda *cuda =
                mmap(NULL, sizeof(*cuda), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        if (cuda == MAP_FAILED)
                return;
        doctor_child_call(&child, CUDA_TIMEOUT_S, probe, cuda);
        if (child.timed_out) {
                doctor_find(doctor, DOCTOR_ERROR, "CUDA runtime", "read the kernel's log, and reset the GPU",
                            "the driver has not answered in %d s", CUDA_TIMEOUT_S);
        } else if (child.exit != 0) {
                doctor_find(doctor, DOCTOR_ERROR, "CUDA runtime", "name another one in PINFEED_LIBCUDART",
                            "looking at it ended with %s %d", child.exit < 0 ? "signal" : "exit code",
                            abs(child.exit));
        } else {
                tell_runtime(doctor, cuda);
                if (cuda->runtime > 0)
                        tell_gpus(doctor, cuda);
        }
        munmap(cuda, sizeof(*cuda));
}
