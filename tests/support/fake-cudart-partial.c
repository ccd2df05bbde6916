/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A CUDA runtime that has every call but cudaEventQuery, and does nothing: for what libpinfeed says of it. */

#define cudaEventQuery cudaEventQueryOfAnotherName
#include "client/cuda.h"

#define DEFINE_CALL(name, parameters)                                                                        \
        cuda_error name parameters;                                                                          \
        cuda_error name parameters {                                                                         \
                return CUDA_SUCCESS;                                                                         \
        }
#define DEFINE_WORD(name, parameters)                                                                        \
        const char *name parameters;                                                                         \
        const char *name parameters {                                                                        \
                return "";                                                                                   \
        }

#pragma GCC visibility push(default)
CUDA_CALLS(DEFINE_CALL)
CUDA_WORDS(DEFINE_WORD)
#pragma GCC visibility pop
