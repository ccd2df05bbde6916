#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Decoding files for `pinfeedctl inspect`: a name and a descriptor in, a line of JSON out. */

struct fault;

/* Answers each record on `socket` until the peer closes it. 0, or a negative errno. */
int inspect_run(int socket, struct fault *fault);
