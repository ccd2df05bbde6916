#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Every number that the daemon keeps for others: one line each.
 *
 * C(MEMBER, METRIC, LABEL, VALUE, TYPE, UNIT, SOURCE, HELP)
 *
 * - MEMBER: its name in `status --json`, in the object of its subject; NULL: it is not there.
 *
 * - METRIC: its name in the text for Prometheus; NULL: it is not there.
 *
 * - LABEL, VALUE: what it has besides the labels of its subject, and what that is; NULL: nothing. In JSON,
 *   where there is a VALUE, MEMBER is an object and VALUE names the number in it.
 *
 * - TYPE: TOTAL, it only grows for as long as its subject is there; or GAUGE, it comes and goes.
 *
 * - UNIT: PLAIN, things that are counted; BYTES; or NS, nanoseconds, which everybody is told as seconds.
 *
 * - SOURCE: of the look at its subject, see counters.c.
 *
 * - HELP: one sentence. NULL: that of the line before, which is of the same METRIC.
 *
 * What they are called in JSON is a contract. In Prometheus names end in their unit, and totals in `_total`.
 * They begin with `pinfeed_` without exception: the usual `process_...` would be somebody else's as soon as a
 * node exporter shows our text beside its own.
 *
 * Jobs and workers have no METRIC: their ids have no end, and each would leave a series behind for as long as
 * Prometheus remembers. Its pipeline's sums have all that can be compared over days; who is slow just now is
 * a question for `status`. */

/* `d` is a struct look_at_daemon. */
#define DAEMON_COUNTERS(C)                                                                                   \
        C(NULL, "pinfeed_start_time_seconds", NULL, NULL, GAUGE, NS, d->daemon->started_wall_ns,             \
          "When the daemon started, in seconds since 1970.")                                                 \
        C("cpus", "pinfeed_cpus", NULL, NULL, GAUGE, PLAIN, d->daemon->budget.places,                        \
          "Workers that may be busy at once, over all pipelines without workers of their own.")              \
        C("workers_busy", NULL, NULL, NULL, GAUGE, PLAIN, d->busy, "Workers that hold a chunk.")             \
        C("cpu_seconds", "pinfeed_cpu_seconds_total", "process", "daemon", TOTAL, NS, d->own_cpu_ns,         \
          "Processor time of the daemon itself, and of all workers it ever had.")                            \
        C("cpu_seconds", "pinfeed_cpu_seconds_total", "process", "workers", TOTAL, NS, d->workers_cpu_ns,    \
          NULL)                                                                                              \
        C(NULL, "pinfeed_resident_memory_bytes", NULL, NULL, GAUGE, BYTES, d->footprint->resident_bytes,     \
          "Resident memory of the daemon itself.")                                                           \
        C(NULL, "pinfeed_open_fds", NULL, NULL, GAUGE, PLAIN, d->footprint->open_fds,                        \
          "File descriptors that the daemon has open.")                                                      \
        C(NULL, "pinfeed_max_fds", NULL, NULL, GAUGE, PLAIN, d->footprint->max_fds,                          \
          "File descriptors that the daemon may have open.")                                                 \
        C(NULL, "pinfeed_refusals_total", "of", "connection", TOTAL, PLAIN, d->daemon->refused_connections,  \
          "Connections that were not taken, and jobs that asked for a pipeline and were refused.")           \
        C(NULL, "pinfeed_refusals_total", "of", "job", TOTAL, PLAIN, d->daemon->refused_jobs, NULL)          \
        C(NULL, "pinfeed_loop_turn_longest_seconds", NULL, NULL, GAUGE, NS, d->daemon->meter.longest_ns,     \
          "The longest turn of the daemon's loop since it started.")                                         \
        C(NULL, "pinfeed_scrapes_total", NULL, NULL, TOTAL, PLAIN, d->daemon->meter.scrapes,                 \
          "Times that this text was asked for.")                                                             \
        C(NULL, "pinfeed_scrape_seconds_total", NULL, NULL, TOTAL, NS, d->daemon->meter.scrape_ns,           \
          "Time of the daemon's loop that answering them has taken.")

/* `p` is a struct look_at_pipeline. */
#define PIPELINE_COUNTERS(C)                                                                                 \
        C("rows_prepared", "pinfeed_rows_prepared_total", NULL, NULL, TOTAL, PLAIN,                          \
          p->counters.rows_prepared, "Rows that workers have prepared.")                                     \
        C("rows_delivered", "pinfeed_rows_delivered_total", NULL, NULL, TOTAL, PLAIN,                        \
          p->counters.rows_delivered, "Rows that were handed to jobs; a row counts for each job.")           \
        C("batches_delivered", "pinfeed_batches_delivered_total", NULL, NULL, TOTAL, PLAIN,                  \
          p->counters.batches_delivered, "Batches that were handed to jobs.")                                \
        C("slots_filled", "pinfeed_slots_filled_total", NULL, NULL, TOTAL, PLAIN, p->counters.slots_filled,  \
          "Times that a slot was filled.")                                                                   \
        C("rows_refilled", "pinfeed_rows_refilled_total", NULL, NULL, TOTAL, PLAIN,                          \
          p->counters.rows_refilled, "Rows that were prepared again, since their slot had been given up.")   \
        C("slots_refilled", "pinfeed_slots_refilled_total", NULL, NULL, TOTAL, PLAIN,                        \
          p->counters.slots_refilled,                                                                        \
          "Slots that were filled with rows for the second time or more, having been given up.")             \
        C("slots_undelivered", "pinfeed_slots_undelivered_total", NULL, NULL, TOTAL, PLAIN,                  \
          p->counters.slots_undelivered, "Slots that were filled for a job and given up undelivered.")       \
        C("catch_ups", "pinfeed_catch_ups_total", NULL, NULL, TOTAL, PLAIN, p->counters.catch_ups,           \
          "Times that a job behind another of its stream began to be brought to it.")                        \
        C("catch_ups_met", "pinfeed_catch_ups_met_total", NULL, NULL, TOTAL, PLAIN,                          \
          p->counters.catch_ups_met, "Times that such a job reached the other one.")                         \
        C("chunks_recalled", "pinfeed_chunks_recalled_total", NULL, NULL, TOTAL, PLAIN,                      \
          p->pipeline->pool.chunks_recalled, "Chunks that were taken back from a worker at a slow sample.")  \
        C("worker_deaths", NULL, NULL, NULL, TOTAL, PLAIN, pool_deaths(&p->pipeline->pool),                  \
          "Workers that have ended without being told to.")                                                  \
        C("deaths", "pinfeed_worker_deaths_total", "kind", "exited", TOTAL, PLAIN,                           \
          p->pipeline->pool.deaths[POOL_DEATH_EXITED],                                                       \
          "Workers that have ended without being told to, by what ended them.")                              \
        C("deaths", "pinfeed_worker_deaths_total", "kind", "crashed", TOTAL, PLAIN,                          \
          p->pipeline->pool.deaths[POOL_DEATH_CRASHED], NULL)                                                \
        C("deaths", "pinfeed_worker_deaths_total", "kind", "oom", TOTAL, PLAIN,                              \
          p->pipeline->pool.deaths[POOL_DEATH_OUT_OF_MEMORY], NULL)                                          \
        C("deaths", "pinfeed_worker_deaths_total", "kind", "killed", TOTAL, PLAIN,                           \
          p->pipeline->pool.deaths[POOL_DEATH_KILLED], NULL)                                                 \
        C("deaths", "pinfeed_worker_deaths_total", "kind", "timed_out", TOTAL, PLAIN,                        \
          p->pipeline->pool.deaths[POOL_DEATH_TIMED_OUT], NULL)                                              \
        C("deaths", "pinfeed_worker_deaths_total", "kind", "expelled", TOTAL, PLAIN,                         \
          p->pipeline->pool.deaths[POOL_DEATH_EXPELLED], NULL)                                               \
        C("busy_seconds", "pinfeed_workers_busy_seconds_total", NULL, NULL, TOTAL, NS,                       \
          pool_busy_ns(&p->pipeline->pool, p->now),                                                          \
          "Time that workers have held a chunk, all of them together.")                                      \
        C(NULL, "pinfeed_workers_cpu_seconds_total", NULL, NULL, TOTAL, NS, pool_cpu_ns(&p->pipeline->pool), \
          "Processor time of workers.")                                                                      \
        C(NULL, "pinfeed_jobs_attached_total", NULL, NULL, TOTAL, PLAIN, p->pipeline->past_jobs.jobs,        \
          "Jobs that were let in.")                                                                          \
        C(NULL, "pinfeed_jobs_waited_for_data_seconds_total", NULL, NULL, TOTAL, NS, p->waits.waited,        \
          "Time that jobs have waited for data: the next batch was due and not ready.")                      \
        C(NULL, "pinfeed_jobs_empty_handed_seconds_total", NULL, NULL, TOTAL, NS, p->waits.empty,            \
          "Of the time that jobs have waited for data: while they held no batch, and so had nothing to do.") \
        C(NULL, "pinfeed_data_waited_for_jobs_seconds_total", NULL, NULL, TOTAL, NS, p->waits.data_waited,   \
          "Time that data has waited for jobs: the next batch was ready, and the job had all it may hold.")  \
        C(NULL, "pinfeed_jobs_waited_for_jobs_seconds_total", NULL, NULL, TOTAL, NS,                         \
          p->waits.waited_for_jobs,                                                                          \
          "Time that jobs have waited for others: in lockstep, gathering, or for ranks of their group.")     \
        C("workers", "pinfeed_workers_wanted", NULL, NULL, GAUGE, PLAIN, pipeline_workers(p->pipeline),      \
          "Workers that the pipeline may have.")                                                             \
        C("workers_alive", "pinfeed_workers", NULL, NULL, GAUGE, PLAIN, p->pipeline->pool.n_workers,         \
          "Workers that the pipeline has.")                                                                  \
        C("workers_busy", "pinfeed_workers_busy", NULL, NULL, GAUGE, PLAIN, pool_busy(&p->pipeline->pool),   \
          "Workers that hold a chunk.")                                                                      \
        C("slots", "pinfeed_ring_slots", NULL, NULL, GAUGE, PLAIN, p->ring_slots,                            \
          "Slots that the ring has, or will have.")                                                          \
        C("slot_bytes", "pinfeed_slot_bytes", NULL, NULL, GAUGE, BYTES,                                      \
          p->pipeline->config->schema.slot_bytes, "Bytes of a slot.")                                        \
        C("ring_bytes", "pinfeed_ring_bytes", NULL, NULL, GAUGE, BYTES, p->ring_bytes,                       \
          "Bytes that the ring has, or will have.")                                                          \
        C("reserved_bytes", "pinfeed_ring_reserved_bytes", NULL, NULL, GAUGE, BYTES,                         \
          p->pipeline->ring.reserved, "Bytes of the ring that are reserved.")                                \
        C(NULL, "pinfeed_slots", "state", "free", GAUGE, PLAIN, p->slots[SCHEDULER_SLOT_FREE],               \
          "Slots of the ring that is there, by state; quarantined: a killed worker may still write there.")  \
        C("slots_filling", "pinfeed_slots", "state", "filling", GAUGE, PLAIN,                                \
          p->slots[SCHEDULER_SLOT_FILLING], NULL)                                                            \
        C("slots_ready", "pinfeed_slots", "state", "ready", GAUGE, PLAIN, p->slots[SCHEDULER_SLOT_READY],    \
          NULL)                                                                                              \
        C("slots_quarantined", "pinfeed_slots", "state", "quarantined", GAUGE, PLAIN,                        \
          p->pipeline->quarantined, NULL)                                                                    \
        C("slots_leased", "pinfeed_slots_leased", NULL, NULL, GAUGE, PLAIN, p->leased,                       \
          "Ready slots that jobs hold.")                                                                     \
        C(NULL, "pinfeed_jobs", NULL, NULL, GAUGE, PLAIN, p->jobs, "Jobs that are attached.")                \
        C(NULL, "pinfeed_jobs_waiting", NULL, NULL, GAUGE, PLAIN, p->jobs_waiting,                           \
          "Attached jobs that wait for data now.")                                                           \
        C("bad_samples", "pinfeed_bad_samples", NULL, NULL, GAUGE, PLAIN,                                    \
          ledger_count(&p->pipeline->ledger), "Samples that could not be made since the ring is there.")     \
        C(NULL, "pinfeed_condemned_samples", NULL, NULL, GAUGE, PLAIN, p->condemned,                         \
          "Samples that are left out, since workers have died of them.")                                     \
        C(NULL, "pinfeed_pipeline_state", "state", "idle", GAUGE, PLAIN,                                     \
          p->pipeline->state == PIPELINE_IDLE, "1 for the state that the pipeline is in, 0 for the others.") \
        C(NULL, "pinfeed_pipeline_state", "state", "describing", GAUGE, PLAIN,                               \
          p->pipeline->state == PIPELINE_DESCRIBING, NULL)                                                   \
        C(NULL, "pinfeed_pipeline_state", "state", "reserving", GAUGE, PLAIN,                                \
          p->pipeline->state == PIPELINE_RESERVING, NULL)                                                    \
        C(NULL, "pinfeed_pipeline_state", "state", "scanning", GAUGE, PLAIN,                                 \
          p->pipeline->state == PIPELINE_SCANNING, NULL)                                                     \
        C(NULL, "pinfeed_pipeline_state", "state", "ready", GAUGE, PLAIN,                                    \
          p->pipeline->state == PIPELINE_READY, NULL)                                                        \
        C(NULL, "pinfeed_pipeline_state", "state", "failed", GAUGE, PLAIN,                                   \
          p->pipeline->state == PIPELINE_FAILED, NULL)                                                       \
        C(NULL, "pinfeed_pipeline_state", "state", "stopping", GAUGE, PLAIN,                                 \
          p->pipeline->state == PIPELINE_STOPPING, NULL)

/* `w` is a struct pool_worker, `now` the time. */
#define WORKER_COUNTERS(C)                                                                                   \
        C("rows", NULL, NULL, NULL, TOTAL, PLAIN, w->rows, "Rows that it has prepared.")                     \
        C("cpu_seconds", NULL, NULL, NULL, TOTAL, NS, pool_worker_cpu_ns(w), "Its processor time.")          \
        C("busy_seconds", NULL, NULL, NULL, TOTAL, NS, pool_worker_busy_ns(w, now),                          \
          "Time that it has held a chunk.")

/* `j` is a struct look_at_job. */
#define JOB_COUNTERS(C)                                                                                      \
        C("rows", NULL, NULL, NULL, TOTAL, PLAIN, j->view.rows, "Rows that it was handed.")                  \
        C("batches", NULL, NULL, NULL, TOTAL, PLAIN, j->view.batches, "Batches that it was handed.")         \
        C("waited_for_data_s", NULL, NULL, NULL, TOTAL, NS, j->account.waited,                               \
          "Time that it has waited for data: its next batch was due and not ready.")                         \
        C("empty_handed_s", NULL, NULL, NULL, TOTAL, NS, j->account.empty,                                   \
          "Of that: while it held no batch, and so had nothing to do.")                                      \
        C("data_waited_s", NULL, NULL, NULL, TOTAL, NS, j->account.data_waited,                              \
          "Time that data has waited for it: its next batch was ready, and it had all it may hold.")         \
        C("waited_for_jobs_s", NULL, NULL, NULL, TOTAL, NS, j->account.waited_for_jobs,                      \
          "Time that it has waited for others: in lockstep, gathering, or for ranks of its group.")          \
        C("held", NULL, NULL, NULL, GAUGE, PLAIN, j->view.held, "Batches that it holds.")                    \
        C("ready", NULL, NULL, NULL, GAUGE, PLAIN, j->view.ready,                                            \
          "Whole batches beyond those that are ready.")                                                      \
        C("minimum", NULL, NULL, NULL, GAUGE, PLAIN, j->view.minimum,                                        \
          "Slots that the batch it holds and the next one take at worst.")                                   \
        C("leased", NULL, NULL, NULL, GAUGE, PLAIN, j->view.leased, "Slots that it holds.")

/* Those that are more than a number: metrics.c knows how to tell each. */
#define SPECIAL_COUNTERS(C)                                                                                  \
        C(BUILD_INFO, "pinfeed_build_info", "version", GAUGE, "1, and the version of the daemon.")           \
        C(LOOP_TURN, "pinfeed_loop_turn_seconds", "le", HISTOGRAM,                                           \
          "Turns of the daemon's loop by what they took, without the time that it waited.")                  \
        C(STAGE, "pinfeed_stage_seconds", "pipeline, stage, le", HISTOGRAM,                                  \
          "Rows by the time that workers took in each stage of making them.")
