/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a configuration file is refused for, with the exact text and place. These texts are what a user reads
 * first of pinfeed; a change of one is meant to be seen here.
 */

#include "tests/support/run.h"
#include "tests/unit/config-file.h"

#include <errno.h>

static void assert_refused(const char *text, const char *expected) {
        struct config *config;
        struct fault fault;

        ck_assert_int_eq(load_bytes(text, strlen(text), &config, &fault), -EINVAL);
        ck_assert_str_eq(fault.text, expected);
}

#define DATASET "    source: {type: python, dataset: 'a:b', "
#define GIVEN   "    source: {type: python, dataset: 'a:b', fields: 'x=int64[]', given_order: true}\n"

static const struct {
        const char *what;
        const char *text;
        const char *expected; /* LINE:COLUMN: ... */
} bad[] = {
        {"an empty file", "", "1:1: expected a mapping with the key pipelines, got an empty file"},
        {"a comment only", "# nothing\n",
         "1:1: expected a mapping with the key pipelines, got an empty file"},
        {"no mapping",
         "- a\n"
         "- b\n",
         "1:1: expected a mapping, got a list"},
        {"a word", "hello\n", "1:1: expected a mapping, got \"hello\""},
        {"an open list", HEAD SOURCE BATCH "    transforms: [\n",
         "6:1: did not find expected node content, while parsing a flow node (line 6)"},
        {"a tab",
         "pipelines:\n"
         "\ta: 1\n",
         "2:1: expected spaces, got a tab"},
        {"two documents", HEAD SOURCE BATCH "---\n" HEAD SOURCE BATCH,
         "5:1: expected one document, got a second one"},
        {"an alias without anchor", HEAD SOURCE "    batch_size: *n\n", "4:17: found undefined alias"},
        {"an anchor that is its own value",
         "pipelines: &p\n"
         "  a: *p\n",
         "2:3: pipelines.a.a: unknown key; pinfeedd --help-config lists those there are"},
        {"a circle of lists", HEAD IMAGES BATCH "    transforms: &t [*t]\n",
         "5:17: pipelines.a.transforms[0]: expected a transform, got a list"},
        {"a tag", HEAD SOURCE "    batch_size: !!int 8\n",
         "4:17: pipelines.a.batch_size: expected a value without a tag, got tag:yaml.org,2002:int"},
        {"a NUL escape", HEAD SOURCE BATCH "    backing: \"shm\\0\"\n",
         "5:14: pipelines.a.backing: expected text, got a NUL byte in it"},
        {"a byte that is no UTF-8",
         "pipelines:\n"
         "  \377: 1\n",
         "2:3: invalid leading UTF-8 octet"},
        {"a control byte",
         "pipelines:\n"
         "  a\001: 1\n",
         "2:4: control characters are not allowed"},
        {"a mapping as a key", "{a: 1}: 2\n", "1:1: expected the name of a key, got a mapping"},
        {"no pipelines", "cpus: 2\n",
         "1:1: pipelines: expected a mapping of up to 64 pipelines by name, got nothing"},
        {"nothing in pipelines", "pipelines:\n",
         "1:11: pipelines: expected a mapping of pipelines by name, got nothing"},
        {"a list of pipelines", "pipelines: [a]\n",
         "1:12: pipelines: expected a mapping of pipelines by name, got a list"},
        {"metrics for everybody", "metrics_listen: \"0.0.0.0:9187\"\n" HEAD SOURCE BATCH,
         "1:17: metrics_listen: expected an address of the loopback, 127.0.0.0/8 or ::1: metrics have no "
         "password; put a proxy that asks for one before them, got \"0.0.0.0:9187\""},
        {"metrics at a name", "metrics_listen: localhost:9187\n" HEAD SOURCE BATCH,
         "1:17: metrics_listen: expected an address of this machine's loopback and a port: "
         "\"127.0.0.1:9187\" or \"[::1]:9187\", got \"localhost:9187\""},
        {"metrics at a port alone", "metrics_listen: 9187\n" HEAD SOURCE BATCH,
         "1:17: metrics_listen: expected an address of this machine's loopback and a port: "
         "\"127.0.0.1:9187\" or \"[::1]:9187\", got \"9187\""},
        {"no mapping of who may", "allow: [a]\n" HEAD SOURCE BATCH,
         "1:8: allow: expected a mapping, got a list"},
        {"a user who is no list", "allow: {users: root}\n" HEAD SOURCE BATCH,
         "1:16: allow.users: expected a list of names or numbers, got \"root\""},
        {"another kind of who", "allow: {user: [root]}\n" HEAD SOURCE BATCH,
         "1:9: allow.user: unknown key, the nearest known one is users"},
        {"a user whom nobody knows", "allow: {users: [root, no-such-user]}\n" HEAD SOURCE BATCH,
         "1:23: allow.users[1]: this machine knows no user \"no-such-user\"; see 'getent passwd', or give a "
         "number"},
        {"a group that nobody knows", HEAD SOURCE BATCH "    allow_pinned: {groups: [no-such-group]}\n",
         "5:29: pipelines.a.allow_pinned.groups[0]: this machine knows no group \"no-such-group\"; see "
         "'getent "
         "group', or give a number"},
        {"a number that is nobody's", "allow: {users: [4294967295]}\n" HEAD SOURCE BATCH,
         "1:17: allow.users[0]: expected a number below 4294967295, got 4294967295"},
        {"a user who is a list", "allow: {users: [[root]]}\n" HEAD SOURCE BATCH,
         "1:17: allow.users[0]: expected a name or number, got a list"},
        {"sockets of no group", "socket_group: [a]\n" HEAD SOURCE BATCH,
         "1:15: socket_group: expected the name or number of a group, got a list"},
        {"sockets of an unknown group", "socket_group: no-such-group\n" HEAD SOURCE BATCH,
         "1:15: socket_group: this machine knows no group \"no-such-group\"; see 'getent group', or give a "
         "number"},
        {"a ring that others can truncate",
         "allow_pinned: {users: [4000000000]}\n" HEAD SOURCE BATCH "    backing: shm\n",
         "6:14: pipelines.a.backing: expected auto or memfd, as allow_pinned in line 1 names other users, "
         "who "
         "could truncate a ring in /dev/shm under every job; got shm"},
        {"unknown key at the top", "cpu: 2\n" HEAD SOURCE BATCH,
         "1:1: cpu: unknown key, the nearest known one is cpus"},
        {"cpus 0", "cpus: 0\n" HEAD SOURCE BATCH,
         "1:7: cpus: expected auto or a whole number from 1 to 1024, got \"0\""},
        {"cpus too many", "cpus: 1025\n" HEAD SOURCE BATCH,
         "1:7: cpus: expected auto or a whole number from 1 to 1024, got \"1025\""},
        {"cpus a word", "cpus: all\n" HEAD SOURCE BATCH,
         "1:7: cpus: expected auto or a whole number from 1 to 1024, got \"all\""},
        {"cpus a list", "cpus: [1]\n" HEAD SOURCE BATCH,
         "1:7: cpus: expected auto or a whole number from 1 to 1024, got a list"},
        {"nice too nice", "nice: 20\n" HEAD SOURCE BATCH,
         "1:7: nice: expected a whole number from 0 to 19, got 20"},
        {"nice negative", "nice: -1\n" HEAD SOURCE BATCH,
         "1:7: nice: expected a whole number from 0 to 19, got -1"},
        {"a pipeline twice", HEAD SOURCE BATCH "  a:\n" SOURCE BATCH,
         "5:3: pipelines.a: expected once, got it in line 2 and line 5"},
        {"a bad name",
         "pipelines:\n"
         "  a b:\n" SOURCE BATCH,
         "2:3: pipelines: expected a name of 1 to 64 of A-Z a-z 0-9 . _ -, got \"a b\""},
        {"a long name",
         "pipelines:\n"
         "  nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn:\n" SOURCE BATCH,
         "2:3: pipelines: expected a name of 1 to 64 of A-Z a-z 0-9 . _ -, got "
         "\"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\""},
        {"an empty pipeline", HEAD, "2:5: pipelines.a: expected a mapping, got nothing"},
        {"a scalar pipeline",
         "pipelines:\n"
         "  a: 5\n",
         "2:6: pipelines.a: expected a mapping, got \"5\""},
        {"unknown key", HEAD SOURCE "    batchsize: 8\n",
         "4:5: pipelines.a.batchsize: unknown key, the nearest known one is batch_size"},
        {"unknown key far away", HEAD SOURCE BATCH "    zzz: 8\n",
         "5:5: pipelines.a.zzz: unknown key; pinfeedd --help-config lists those there are"},
        {"a key twice",
         HEAD SOURCE BATCH "    seed: 1\n"
                           "    batch_size: 9\n",
         "6:5: pipelines.a.batch_size: expected once, got it in line 4 and line 6"},
        {"no source", HEAD BATCH,
         "3:5: pipelines.a.source: expected a mapping with `type` and the keys of that source, got nothing"},
        {"no batch_size", HEAD SOURCE,
         "3:5: pipelines.a.batch_size: expected a whole number from 1 to 2147483647, got nothing"},
        {"batch_size 0", HEAD SOURCE "    batch_size: 0\n",
         "4:17: pipelines.a.batch_size: expected a whole number from 1 to 2147483647, got 0"},
        {"batch_size 2^31", HEAD SOURCE "    batch_size: 2147483648\n",
         "4:17: pipelines.a.batch_size: expected a whole number from 1 to 2147483647, got 2147483648"},
        {"batch_size negative", HEAD SOURCE "    batch_size: -8\n",
         "4:17: pipelines.a.batch_size: expected a whole number from 1 to 2147483647, got -8"},
        {"batch_size a fraction", HEAD SOURCE "    batch_size: 8.5\n",
         "4:17: pipelines.a.batch_size: expected a whole number from 1 to 2147483647, got 8.5"},
        {"batch_size quoted", HEAD SOURCE "    batch_size: \"8\"\n",
         "4:17: pipelines.a.batch_size: expected a whole number from 1 to 2147483647, got \"8\""},
        {"batch_size octal", HEAD SOURCE "    batch_size: 010\n",
         "4:17: pipelines.a.batch_size: expected a whole number from 1 to 2147483647, got \"010\""},
        {"batch_size hexadecimal", HEAD SOURCE "    batch_size: 0x10\n",
         "4:17: pipelines.a.batch_size: expected a whole number from 1 to 2147483647, got \"0x10\""},
        {"batch_size left out", HEAD SOURCE "    batch_size:\n",
         "4:16: pipelines.a.batch_size: expected a whole number from 1 to 2147483647, got nothing"},
        {"batch_size a list", HEAD SOURCE "    batch_size: [8]\n",
         "4:17: pipelines.a.batch_size: expected a whole number from 1 to 2147483647, got [8]"},
        {"batch_size a mapping", HEAD SOURCE "    batch_size: {n: 8}\n",
         "4:17: pipelines.a.batch_size: expected a whole number from 1 to 2147483647, got {}"},
        {"batch_size beyond 64 bits", HEAD SOURCE "    batch_size: 99999999999999999999\n",
         "4:17: pipelines.a.batch_size: expected a whole number from 1 to 2147483647, got "
         "\"99999999999999999999\""},
        {"shuffle yes", HEAD SOURCE BATCH "    shuffle: yes\n",
         "5:14: pipelines.a.shuffle: expected true or false, got \"yes\""},
        {"seed beyond 64 bits", HEAD SOURCE BATCH "    seed: 18446744073709551616\n",
         "5:11: pipelines.a.seed: expected a whole number from 0 to 18446744073709551615, got "
         "\"18446744073709551616\""},
        {"last_batch unknown", HEAD SOURCE BATCH "    last_batch: keep\n",
         "5:17: pipelines.a.last_batch: expected one of short, drop, pad, got \"keep\""},
        {"drop_last against pad",
         HEAD SOURCE BATCH "    last_batch: pad\n"
                           "    drop_last: true\n",
         "6:16: pipelines.a.drop_last: expected false, as last_batch in line 5 says, or one of the two keys "
         "only, got true"},
        {"lookahead beyond", HEAD SOURCE BATCH "    lookahead: 1000001\n",
         "5:16: pipelines.a.lookahead: expected a whole number from 0 to 1000000, got 1000001"},
        {"lookahead below", HEAD SOURCE BATCH "    lookahead: -1\n",
         "5:16: pipelines.a.lookahead: expected a whole number from 0 to 1000000, got -1"},
        {"drop_last against last_batch",
         HEAD SOURCE BATCH "    last_batch: short\n"
                           "    drop_last: true\n",
         "6:16: pipelines.a.drop_last: expected false, as last_batch in line 5 says, or one of the two keys "
         "only, got true"},
        {"last_batch against drop_last",
         HEAD SOURCE BATCH "    drop_last: false\n"
                           "    last_batch: drop\n",
         "5:16: pipelines.a.drop_last: expected true, as last_batch in line 6 says, or one of the two keys "
         "only, got false"},
        {"drop_last with too few samples",
         HEAD "    source:\n"
              "      type: synthetic\n"
              "      samples: 5\n" BATCH "    drop_last: true\n",
         "5:16: pipelines.a.source.samples: expected at least 8 (batch_size, as last_batch is drop), got 5"},
        {"no samples", HEAD "    source: {type: synthetic, samples: 0}\n" BATCH,
         "3:40: pipelines.a.source.samples: expected a whole number from 1 to 281474976710656, got 0"},
        {"workers 0", HEAD SOURCE BATCH "    workers: 0\n",
         "5:14: pipelines.a.workers: expected a whole number from 1 to 1024, got 0"},
        {"workers -1", HEAD SOURCE BATCH "    workers: -1\n",
         "5:14: pipelines.a.workers: expected a whole number from 1 to 1024, got -1"},
        {"workers a million", HEAD SOURCE BATCH "    workers: 1000000\n",
         "5:14: pipelines.a.workers: expected a whole number from 1 to 1024, got 1000000"},
        {"slots 1", HEAD SOURCE BATCH "    slots: 1\n",
         "5:12: pipelines.a.slots: expected a whole number from 2 to 1048576, got 1"},
        {"slots and ring",
         HEAD SOURCE BATCH "    slots: 4\n"
                           "    ring: 1G\n",
         "6:11: pipelines.a.ring: expected either slots or ring, got both (slots in line 5)"},
        {"ring 0", HEAD SOURCE BATCH "    ring: 0\n",
         "5:11: pipelines.a.ring: expected bytes, as a whole number or like 64M, from 1 to "
         "9223372036854775808, got 0"},
        {"ring 1", HEAD SOURCE BATCH "    ring: 1\n",
         "5:11: pipelines.a.ring: expected at least 49152 bytes (2 slots of 24576 bytes), got 1"},
        {"ring 4095", HEAD SOURCE BATCH "    ring: 4095\n",
         "5:11: pipelines.a.ring: expected at least 49152 bytes (2 slots of 24576 bytes), got 4095"},
        {"ring 4096", HEAD SOURCE BATCH "    ring: 4096\n",
         "5:11: pipelines.a.ring: expected at least 49152 bytes (2 slots of 24576 bytes), got 4096"},
        {"ring of a slot less one", HEAD SOURCE BATCH "    ring: 24575\n",
         "5:11: pipelines.a.ring: expected at least 49152 bytes (2 slots of 24576 bytes), got 24575"},
        {"ring of one slot", HEAD SOURCE BATCH "    ring: 24576\n",
         "5:11: pipelines.a.ring: expected at least 49152 bytes (2 slots of 24576 bytes), got 24576"},
        {"ring of two slots less one", HEAD SOURCE BATCH "    ring: 49151\n",
         "5:11: pipelines.a.ring: expected at least 49152 bytes (2 slots of 24576 bytes), got 49151"},
        {"ring 2^40", HEAD SOURCE BATCH "    ring: 1T\n",
         "5:11: pipelines.a.ring: expected at most 1048576 slots of 24576 bytes, got 1099511627776 bytes "
         "(44739242 slots)"},
        {"ring 2^63", HEAD SOURCE BATCH "    ring: 9223372036854775808\n",
         "5:11: pipelines.a.ring: expected at most 1048576 slots of 24576 bytes, got 9223372036854775808 "
         "bytes (375299968947541 slots)"},
        {"ring 2^64", HEAD SOURCE BATCH "    ring: 18446744073709551616\n",
         "5:11: pipelines.a.ring: expected bytes, as a whole number or like 64M, from 1 to "
         "9223372036854775808, got \"18446744073709551616\""},
        {"ring no size", HEAD SOURCE BATCH "    ring: big\n",
         "5:11: pipelines.a.ring: expected bytes, as a whole number or like 64M, from 1 to "
         "9223372036854775808, got \"big\""},
        {"ring negative", HEAD SOURCE BATCH "    ring: -1\n",
         "5:11: pipelines.a.ring: expected bytes, as a whole number or like 64M, from 1 to "
         "9223372036854775808, got -1"},
        {"backing unknown", HEAD SOURCE BATCH "    backing: hugetlb\n",
         "5:14: pipelines.a.backing: expected one of auto, shm, memfd, got \"hugetlb\""},
        {"reserve unknown", HEAD SOURCE BATCH "    reserve: never\n",
         "5:14: pipelines.a.reserve: expected one of attach, start, got \"never\""},
        {"on_error unknown", HEAD SOURCE BATCH "    on_error: skip\n",
         "5:15: pipelines.a.on_error: expected one of replace, fail, got \"skip\""},
        {"max_errors over all", HEAD SOURCE BATCH "    max_errors: 1.5\n",
         "5:17: pipelines.a.max_errors: expected a number from 0 to 1, got 1.5"},
        {"max_errors negative", HEAD SOURCE BATCH "    max_errors: -0.001\n",
         "5:17: pipelines.a.max_errors: expected a number from 0 to 1, got -0.001"},
        {"max_errors with a sign for hundredths", HEAD SOURCE BATCH "    max_errors: 1%\n",
         "5:17: pipelines.a.max_errors: expected a number from 0 to 1, got \"1%\""},
        {"idle below 0", "idle: -1\n" HEAD SOURCE BATCH,
         "1:7: idle: expected a number from 0 to 31536000, got -1"},
        {"idle a word", HEAD SOURCE BATCH "    idle: never\n",
         "5:11: pipelines.a.idle: expected a number from 0 to 31536000, got \"never\""},
        {"catch_up negative", HEAD SOURCE BATCH "    catch_up: -1\n",
         "5:15: pipelines.a.catch_up: expected a number from 0 to 86400, got -1"},
        {"sharing by another name", HEAD SOURCE BATCH "    sharing: tight\n",
         "5:14: pipelines.a.sharing: expected one of elastic, lockstep, got \"tight\""},
        {"max_lead without lockstep", HEAD SOURCE BATCH "    max_lead: 64\n",
         "5:15: pipelines.a.max_lead: expected it only with `sharing: lockstep`"},
        {"lag_timeout without lockstep", HEAD SOURCE BATCH "    sharing: elastic\n    lag_timeout: 9\n",
         "6:18: pipelines.a.lag_timeout: expected it only with `sharing: lockstep`"},
        {"warm beyond the ring", HEAD SOURCE BATCH "    slots: 4\n    warm: 5\n",
         "6:11: pipelines.a.warm: expected at most the ring's 4 slots, got 5"},
        {"warm beyond the ring that is usual", HEAD SOURCE BATCH "    warm: 9\n",
         "5:11: pipelines.a.warm: expected at most the ring's 8 slots, got 9"},
        {"sample_timeout 0", HEAD SOURCE BATCH "    sample_timeout: 0\n",
         "5:21: pipelines.a.sample_timeout: expected a number from 0.5 to 86400, got 0"},
        {"sample_timeout over a day", HEAD SOURCE BATCH "    sample_timeout: 86400.5\n",
         "5:21: pipelines.a.sample_timeout: expected a number from 0.5 to 86400, got 86400.5"},
        {"sample_timeout with a unit", HEAD SOURCE BATCH "    sample_timeout: 60s\n",
         "5:21: pipelines.a.sample_timeout: expected a number from 0.5 to 86400, got \"60s\""},
        {"slots that fit no file",
         HEAD "    source: {type: synthetic, samples: 1, features: 16777216}\n"
              "    batch_size: 2147483647\n"
              "    slots: 1048576\n",
         "5:12: pipelines.a.slots: expected a ring that fits a file, got 1048576 slots of 144115224515969024 "
         "bytes"},
        {"a slot beyond 64 bits",
         HEAD IMAGES "    transforms: [{center_crop: {size: 65535}}]\n"
                     "    batch_size: 2147483647\n",
         "5:17: pipelines.a.batch_size: field images: 2147483647 rows of it need more bytes than a file can "
         "have"},
        {"workers brought to a daemon's own pipeline",
         HEAD "    source: {type: python, brought: true, fields: 'x=int64[]'}\n" BATCH,
         "3:37: pipelines.a.source.brought: expected it only in what a job defines, which also brings the "
         "workers, as pinfeed.DataLoader does"},
        {"given orders, prepared ahead", HEAD GIVEN BATCH "    lookahead: 1\n",
         "5:16: pipelines.a.lookahead: expected 0 with `given_order: true`: each order comes with its epoch, "
         "got 1"},
        {"given orders at the start", HEAD GIVEN BATCH "    reserve: start\n",
         "5:14: pipelines.a.reserve: expected nothing to be prepared before a job is there, with "
         "`given_order: true`"},
        {"given orders, warm", HEAD GIVEN BATCH "    warm: 2\n",
         "5:11: pipelines.a.warm: expected nothing to be prepared before a job is there, with "
         "`given_order: true`"},
        {"a dataset that fills no batch",
         HEAD "    source: {type: python, dataset: 'a:b', fields: 'x=int64[]', samples: 3}\n" BATCH
              "    drop_last: true\n",
         "3:74: pipelines.a.source.samples: expected at least 8 (batch_size, as last_batch is drop), got 3"},
        {"a dataset without a factory", HEAD "    source: {type: python, dataset: 'a.b'}\n" BATCH,
         "3:13: pipelines.a.source: dataset: expected package.module:factory, got no colon"},
        {"arguments that are no mapping", HEAD DATASET "args: [1]}\n" BATCH,
         "3:50: pipelines.a.source.args: expected a mapping that takes 4096 bytes at most as JSON, got [1]"},
        {"an argument that no number can hold", HEAD DATASET "args: {a: [9223372036854775808]}}\n" BATCH,
         "3:55: pipelines.a.source.args.a[0]: expected a whole number from -2^63 to 2^63-1, or a text in "
         "quotes, got 9223372036854775808"},
        {"an argument with a tag", HEAD DATASET "args: {a: !!set {}}}\n" BATCH,
         "3:54: pipelines.a.source.args.a: expected a value without a tag, got tag:yaml.org,2002:set"},
        {"an argument said twice", HEAD DATASET "args: {a: 1, a: 2}}\n" BATCH,
         "3:57: pipelines.a.source.args.a: expected once"},
        {"an argument without a name", HEAD DATASET "args: {[a]: 1}}\n" BATCH,
         "3:51: pipelines.a.source.args: expected names as keys"},
        {"an argument that holds itself", HEAD DATASET "args: &c {a: *c}}\n" BATCH,
         "3:50: pipelines.a.source.args.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a: expected at most 16 levels, and "
         "4096 "
         "values in all"},
        {"arguments of few lines and many values",
         HEAD DATASET
         "args: {a: &a [1, 1, 1, 1, 1, 1, 1, 1], b: &b [*a, *a, *a, *a, *a, *a, *a, *a], c: &c [*b, "
         "*b, *b, *b, *b, *b, *b, *b], d: [*c, *c, *c, *c, *c, *c, *c, *c]}}\n" BATCH,
         "3:79: pipelines.a.source.args.d[5][6][6][7]: expected at most 16 levels, and 4096 values in all"},
        {"a path that is no list", HEAD DATASET "path: /x}\n" BATCH,
         "3:50: pipelines.a.source.path: expected a list of texts that takes 4095 bytes at most, got \"/x\""},
        {"a dataset with wrong fields", HEAD DATASET "fields: 'x=int63[]'}\n" BATCH,
         "3:13: pipelines.a.source: fields: x: no dtype is called \"int63\""},
        {"brought without fields", HEAD "    source: {type: python, brought: true}\n" BATCH,
         "3:13: pipelines.a.source: fields: expected them with `brought: true`, got nothing"},
        {"a dataset of unknown rows, both slots and ring",
         HEAD "    source: {type: python, dataset: 'a:b'}\n" BATCH "    slots: 4\n    ring: 64K\n",
         "6:11: pipelines.a.ring: expected either slots or ring, got both (slots in line 5)"},
        {"source a word", HEAD "    source: synthetic\n" BATCH,
         "3:13: pipelines.a.source: expected a mapping, got \"synthetic\""},
        {"source without type", HEAD "    source: {samples: 100}\n" BATCH,
         "3:13: pipelines.a.source.type: expected one of synthetic, imagefolder, python, got nothing"},
        {"source of unknown type", HEAD "    source: {type: tar, samples: 100}\n" BATCH,
         "3:20: pipelines.a.source.type: expected one of synthetic, imagefolder, python, got \"tar\""},
        {"source with another's key", HEAD "    source: {type: synthetic, samples: 100, path: /x}\n" BATCH,
         "3:45: pipelines.a.source.path: unknown key; pinfeedd --help-config lists those there are"},
        {"source key twice", HEAD "    source: {type: synthetic, samples: 100, samples: 100}\n" BATCH,
         "3:45: pipelines.a.source.samples: expected once, got it in line 3 and line 3"},
        {"source type twice", HEAD "    source: {type: synthetic, samples: 100, type: synthetic}\n" BATCH,
         "3:45: pipelines.a.source.type: expected once, got it in line 3 and line 3"},
        {"imagefolder without path", HEAD "    source: {type: imagefolder}\n" BATCH CROP,
         "3:13: pipelines.a.source.path: expected text of 1 to 4095 bytes, got nothing"},
        {"imagefolder with an empty path", HEAD "    source: {type: imagefolder, path: ''}\n" BATCH CROP,
         "3:39: pipelines.a.source.path: expected text of 1 to 4095 bytes, got \"\""},
        {"imagefolder without transforms", HEAD IMAGES BATCH,
         "3:13: pipelines.a.source: expected images of one size at the end, got whatever the files have: add "
         "center_crop"},
        {"only the shorter edge",
         HEAD IMAGES BATCH "    transforms: [{resize: {size: 4}}, random_horizontal_flip]\n",
         "5:18: pipelines.a.transforms[0]: expected images of one size at the end, got the shorter edge "
         "only: add center_crop"},
        {"transforms of a synthetic source", HEAD SOURCE BATCH CROP,
         "5:18: pipelines.a.transforms[0]: expected no transforms, a synthetic source has no images"},
        {"transforms a mapping", HEAD IMAGES BATCH "    transforms: {center_crop: {size: 4}}\n",
         "5:17: pipelines.a.transforms: expected a list of transforms, got a mapping"},
        {"an unknown transform", HEAD IMAGES BATCH "    transforms: [{resise: {size: 4}}]\n",
         "5:19: pipelines.a.transforms[0]: expected one of resize, center_crop, random_resized_crop, "
         "random_horizontal_flip, normalize, got \"resise\""},
        {"two transforms in an item",
         HEAD IMAGES BATCH "    transforms: [{resize: {size: 4}, center_crop: {size: 4}}]\n",
         "5:18: pipelines.a.transforms[0]: expected one transform in each item of the list, got 2"},
        {"a list in transforms", HEAD IMAGES BATCH "    transforms: [[resize]]\n",
         "5:18: pipelines.a.transforms[0]: expected a transform, got a list"},
        {"a transform without its keys",
         HEAD IMAGES BATCH "    transforms:\n"
                           "      - center_crop\n",
         "6:9: pipelines.a.transforms[0].center_crop.size: expected a whole number or a list of two, from 1 "
         "to 65535, got nothing"},
        {"a transform with a bare value",
         HEAD IMAGES BATCH "    transforms:\n"
                           "      - center_crop: 4\n",
         "6:22: pipelines.a.transforms[0].center_crop: expected a mapping, got \"4\""},
        {"unknown key of a transform",
         HEAD IMAGES BATCH "    transforms:\n"
                           "      - center_crop: {sice: 4}\n",
         "6:23: pipelines.a.transforms[0].center_crop.sice: unknown key, the nearest known one is size"},
        {"size 0",
         HEAD IMAGES BATCH "    transforms:\n"
                           "      - center_crop: {size: 0}\n",
         "6:29: pipelines.a.transforms[0].center_crop.size: expected a whole number or a list of two, from 1 "
         "to 65535, got 0"},
        {"a size of three",
         HEAD IMAGES BATCH "    transforms:\n"
                           "      - center_crop: {size: [1, 2, 3]}\n",
         "6:29: pipelines.a.transforms[0].center_crop.size: expected a whole number or a list of two, from 1 "
         "to 65535, got [1, 2, 3]"},
        {"a size of lists",
         HEAD IMAGES BATCH "    transforms:\n"
                           "      - center_crop: {size: [[1], 2]}\n",
         "6:29: pipelines.a.transforms[0].center_crop.size: expected a whole number or a list of two, from 1 "
         "to 65535, got [[], 2]"},
        {"p over 1",
         HEAD IMAGES BATCH "    transforms: [{center_crop: {size: 4}}, {random_horizontal_flip: {p: 1.5}}]\n",
         "5:73: pipelines.a.transforms[1].random_horizontal_flip.p: expected a number from 0 to 1, got 1.5"},
        {"mean of two",
         HEAD IMAGES BATCH
         "    transforms: [{center_crop: {size: 4}}, {normalize: {mean: [1, 2], std: [1, 1, 1]}}]\n",
         "5:63: pipelines.a.transforms[1].normalize.mean: expected a list of three numbers from -1000000 to "
         "1000000, got [1, 2]"},
        {"std of zero",
         HEAD IMAGES BATCH
         "    transforms: [{center_crop: {size: 4}}, {normalize: {mean: [0, 0, 0], std: [1, 0, 1]}}]\n",
         "5:79: pipelines.a.transforms[1].normalize.std: expected a list of three numbers from 1e-12 to "
         "1000000, got [1, 0, 1]"},
        {"a falling scale",
         HEAD IMAGES BATCH "    transforms: [{random_resized_crop: {size: 4, scale: [0.9, 0.1]}}]\n",
         "5:57: pipelines.a.transforms[0].random_resized_crop.scale: expected a list of two numbers, the "
         "lower one first, from 0 to 10, got [0.9, 0.1]"},
        {"infinity",
         HEAD IMAGES BATCH
         "    transforms: [{center_crop: {size: 4}}, {random_horizontal_flip: {p: .inf}}]\n",
         "5:73: pipelines.a.transforms[1].random_horizontal_flip.p: expected a number from 0 to 1, got "
         "\".inf\""},
        {"normalize with uint8",
         HEAD IMAGES BATCH
         "    transforms: [{center_crop: {size: 4}}, {normalize: {mean: [0, 0, 0], std: [1, 1, 1]}}]\n"
         "    output: {dtype: uint8}\n",
         "5:44: pipelines.a.transforms[1]: expected an output dtype of floats, got uint8: choose another or "
         "leave normalize out"},
        {"output of unknown dtype", HEAD IMAGES BATCH CROP "    output: {dtype: int32}\n",
         "6:21: pipelines.a.output.dtype: expected one of uint8, float16, bfloat16, float32, got \"int32\""},
        {"output a word", HEAD IMAGES BATCH CROP "    output: float32\n",
         "6:13: pipelines.a.output: expected a mapping, got \"float32\""},
        {"too many transforms",
         HEAD IMAGES BATCH
         "    transforms: [random_horizontal_flip, random_horizontal_flip, random_horizontal_flip, "
         "random_horizontal_flip, random_horizontal_flip, random_horizontal_flip, random_horizontal_flip, "
         "random_horizontal_flip, random_horizontal_flip, random_horizontal_flip, random_horizontal_flip, "
         "random_horizontal_flip, random_horizontal_flip, random_horizontal_flip, random_horizontal_flip, "
         "random_horizontal_flip, random_horizontal_flip]\n",
         "5:17: pipelines.a.transforms: expected at most 16 transforms, got 17"},
        {"too many items in a value",
         HEAD IMAGES BATCH "    transforms:\n"
                           "      - center_crop: {size: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
                           "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
                           "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}\n",
         "6:29: pipelines.a.transforms[0].center_crop.size: expected at most 64 items, got 65"},
};

START_TEST(test_bad) {
        struct config *config;
        struct fault fault;

        if (load_bytes(bad[_i].text, strlen(bad[_i].text), &config, &fault) != -EINVAL ||
            strcmp(fault.text, bad[_i].expected))
                ck_abort_msg("%s:\n  expected \"%s\"\n  got      \"%s\"", bad[_i].what, bad[_i].expected,
                             fault.text);
}
END_TEST

START_TEST(test_foreign_names_are_cleaned) {
        /* an escape sequence of a terminal, as a key */
        assert_refused(HEAD SOURCE BATCH "    \"\\e[31m\\n\": 1\n",
                       "5:5: pipelines.a.?[31m?: unknown key; pinfeedd --help-config lists those there are");
        assert_refused("pipelines:\n  \"\\e\": 1\n",
                       "2:3: pipelines: expected a name of 1 to 64 of A-Z a-z 0-9 . _ -, got \"?\"");
}
END_TEST

START_TEST(test_bounds_of_a_file) {
        _cleanup_(freep) char *text = malloc((1 << 20) + 2);
        struct config *config;
        struct fault fault;

        ck_assert_ptr_nonnull(text);
        memset(text, '[', (1 << 20) + 2);
        ck_assert_int_eq(load_bytes(text, 1 << 20, &config, &fault), -EINVAL);
        ck_assert_str_eq(fault.text, "1:33: expected at most 32 levels of nesting, got more");
        ck_assert_int_eq(load_bytes(text, (1 << 20) + 1, &config, &fault), -EFBIG);
        ck_assert_str_eq(fault.text, " expected a file of at most 1048576 bytes, got more");

        text[0] = 0;
        for (int i = 0; i < 1001; i++)
                sprintf(text + strlen(text), "- &a%d x\n", i);
        assert_refused(text, "1001:3: expected at most 1000 anchors, got more");

        ck_assert_int_eq(load_bytes("a: b\n\xc3\xa4 \0", 9, &config, &fault), -EINVAL);
        ck_assert_str_eq(fault.text, "2:3: expected text, got a NUL byte");
}
END_TEST

START_TEST(test_no_file) {
        struct config *config = NULL;
        struct fault fault;

        ck_assert_int_eq(config_load(&config, "/nowhere/pinfeed.yaml", &fault), -ENOENT);
        ck_assert_str_eq(fault.text, "/nowhere/pinfeed.yaml: cannot be opened: No such file or directory");
        ck_assert_int_eq(config_load(&config, "/", &fault), -EISDIR);
        ck_assert_str_eq(fault.text, "/: cannot be read: Is a directory");
        ck_assert_ptr_null(config);
}
END_TEST

START_TEST(test_number_of_pipelines) {
        char text[8192] = "pipelines:\n";
        char more[128];

        for (int i = 0; i < CONFIG_PIPELINES_MAX; i++)
                sprintf(text + strlen(text),
                        "  p%d: {source: {type: synthetic, samples: 9}, batch_size: 8}\n", i);
        config_unref(load(text));
        snprintf(more, sizeof(more), "2:3: pipelines: expected 0 to 64 pipelines, got 65");
        strcat(text, "  p: {source: {type: synthetic, samples: 9}, batch_size: 8}\n");
        assert_refused(text, more);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("config-refused");
        TCase *tests = tcase_create("config-refused");

        suite_add_tcase(suite, tests);
        tcase_add_loop_test(tests, test_bad, 0, sizeof(bad) / sizeof(*bad));
        tcase_add_test(tests, test_foreign_names_are_cleaned);
        tcase_add_test(tests, test_bounds_of_a_file);
        tcase_add_test(tests, test_no_file);
        tcase_add_test(tests, test_number_of_pipelines);
        return run_suite(suite);
}
