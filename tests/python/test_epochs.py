# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Epochs, and states."""

import io

import pinfeed
from support import Case, assert_epoch, needs_numpy, needs_torch, ramp, torch


def samples_of(iterator):
    return [int(sample) for batch in iterator for sample in batch[0]]


@needs_numpy
class Epochs(Case):
    def loader(self, **arguments):
        return super().loader(output='numpy', **arguments)

    def test_one_after_the_other(self):
        loader = self.loader()
        self.assertEqual(len(loader), 32)
        for epoch in range(3):
            assert_epoch(self, loader, epoch)

    def test_leaving_early_abandons_the_rest(self):
        loader = self.loader()
        for batches in (1, 5, 32):  # after the last one, too
            for i, _ in enumerate(loader, 1):
                if i == batches:
                    break
        assert_epoch(self, loader, 3)

    def test_leaving_before_the_first_batch(self):
        loader = self.loader()
        iter(loader)
        assert_epoch(self, loader, 1)

    def test_set_epoch(self):
        loader = self.loader()
        loader.set_epoch(7)
        assert_epoch(self, loader, 7)
        assert_epoch(self, loader, 8)
        loader.sampler.set_epoch(2)
        assert_epoch(self, loader, 2)
        with self.assertRaisesRegex(pinfeed.Invalid, 'epoch=-1: expected 0 or more'):
            loader.set_epoch(-1)

    def test_length_and_remaining(self):
        loader = self.loader()
        left = []
        for _ in loader:
            left.append(loader.remaining)
        self.assertEqual(left[:2] + left[-2:], [31, 30, 1, 32])
        self.assertEqual(len(loader), 32)

    def test_second_iter_ends_the_first(self):
        loader = self.loader()
        first = iter(loader)
        next(first)
        second = iter(loader)
        with self.assertRaisesRegex(pinfeed.Error, 'this iteration is over'):
            next(first)
        index, data = next(second)
        self.assertTrue((data == ramp(index, 1, 3000)).all())

    def test_an_ended_iterator_stays_ended(self):
        loader = self.loader()
        iterator = iter(loader)
        samples_of(iterator)
        for _ in range(3):
            self.assertRaises(StopIteration, next, iterator)
        self.assertEqual(loader.state_dict()['epoch'], 1)

    def test_drop_last(self):
        loader = self.loader(drop_last=True)
        self.assertTrue(loader.drop_last)
        self.assertEqual((len(loader), len(samples_of(loader))), (31, 31 * 32))
        loader = self.loader(last_batch='short')
        self.assertFalse(loader.drop_last)
        self.assertEqual(len(loader), 32)

    def test_what_frameworks_ask_for(self):
        loader = self.loader(batch_size=10)
        self.assertEqual((len(loader.dataset), loader.batch_size, loader.rank, loader.world_size), (1000, 10, 0, 1))
        self.assertIn('1000 samples, 100 batches of 10, seed 0', repr(loader))


@needs_numpy
class States(Case):
    def loader(self, **arguments):
        return super().loader(output='numpy', **arguments)

    def test_goes_on_mid_epoch_once(self):
        first = self.loader()
        reading = iter(first)
        before = samples_of(next(reading) for _ in range(9))
        state = first.state_dict()
        self.assertEqual((state['epoch'], state['row']), (0, 9 * 32))

        second = self.loader()
        second.load_state_dict(state)
        self.assertEqual(second.state_dict(), state)
        self.assertEqual((second.remaining, len(second)), (23, 32))
        after = samples_of(second)
        self.assertEqual(sorted(before + after), list(range(1000)))
        self.assertEqual(len(samples_of(second)), 1000)  # epoch 1, whole

    def test_set_epoch_of_the_same_keeps_the_middle(self):
        loader = self.loader()
        state = dict(loader.state_dict(), epoch=3, row=960)
        loader.load_state_dict(state)
        loader.set_epoch(3)
        self.assertEqual(len(samples_of(loader)), 40)
        loader.load_state_dict(state)
        loader.set_epoch(4)
        self.assertEqual(len(samples_of(loader)), 1000)

    def test_is_of_what_was_received(self):
        loader = self.loader()
        for i, _ in enumerate(loader, 1):
            self.assertEqual(loader.state_dict()['row'], 32 * i % 1000 if i < 32 else 0)
        self.assertEqual(loader.state_dict()['epoch'], 1)

    def test_loading_ends_an_iteration(self):
        loader = self.loader()
        reading = iter(loader)
        next(reading)
        loader.load_state_dict(loader.state_dict())
        with self.assertRaisesRegex(pinfeed.Error, 'this iteration is over'):
            next(reading)

    def test_another_batch_size_and_world_size(self):
        first = self.loader()
        reading = iter(first)
        seen = samples_of(next(reading) for _ in range(3))
        state = first.state_dict()
        ranks = [self.loader(rank=rank, world_size=3, batch_size=7) for rank in range(3)]
        for rank in ranks:
            rank.load_state_dict(state)
        for batches in zip(*ranks):
            seen += samples_of(batches)
        self.assertEqual(sorted(set(seen)), list(range(1000)))
        self.assertLessEqual(len(seen), 1002)  # at most world size - 1 rows of padding

    def test_what_has_changed_is_refused(self):
        loader = self.loader(seed=1)
        state = loader.state_dict()
        for change, words in (({'seed': 2}, 'the state is of seed 2, this loader has seed 1'),
                              ({'pipeline': 'other'}, 'the state is of pipeline other'),
                              ({'fingerprint': state['fingerprint'].replace('1000', '900')}, '900')):
            with self.subTest(change=change), self.assertRaisesRegex(pinfeed.Stale, words):
                loader.load_state_dict(dict(state, row=320, **change))
            self.assertEqual(loader.state_dict(), state)
        loader.load_state_dict(dict(state, row=320, pipeline='other'), force=True)
        self.assertEqual(loader.state_dict(), dict(state, row=320))
        for broken in ({}, 'text', None, {'epoch': 1}):
            self.assertRaisesRegex(pinfeed.Invalid, 'expected what state_dict', loader.load_state_dict, broken)
        self.assertRaisesRegex(pinfeed.Invalid, '1000 rows', loader.load_state_dict, dict(state, row=1000))

    @needs_torch
    def test_survives_torch_save(self):
        loader = self.loader(seed=2**64 - 1)
        next(iter(loader))
        file = io.BytesIO()
        torch.save({'loader': loader.state_dict()}, file)
        file.seek(0)
        state = torch.load(file, weights_only=True)['loader']
        self.assertEqual(state, loader.state_dict())
        loader.load_state_dict(state)
        self.assertEqual(len(samples_of(loader)), 1000 - 32)




@needs_numpy
class Starts(Case):
    def test_live(self):
        leading = iter(self.loader(output='numpy'))
        for _ in range(5):
            next(leading)
        loader = self.loader(output='numpy', start='live', group='run')
        state = loader.state_dict()
        self.assertEqual(state['epoch'], 0)
        self.assertGreaterEqual(state['row'], 5 * 32)
        self.assertEqual(loader.remaining, 32 - state['row'] // 32)
        self.assertEqual(len(samples_of(loader)), 1000 - state['row'])
        self.assertEqual(len(samples_of(loader)), 1000)

    def test_gather(self):
        first = self.loader(output='numpy', gather=2, timeout=0.2)
        reading = iter(first)
        self.assertRaises(TimeoutError, next, reading)
        second = self.loader(output='numpy', gather=2)
        self.assertEqual(next(reading)[0].tolist(), next(iter(second))[0].tolist())
