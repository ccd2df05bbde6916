#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What an attached job is sent: checked, and queued. */

struct pinfeed_job;

/* Takes in one message. 1: it did; 0: nothing there; or the error that ends the stream, with its text. */
int intake_receive(struct pinfeed_job *job);
