"""Random streams and what rests on them: the same words give the same world, whatever else is drawn."""

from itertools import combinations

import numpy as np
import pytest
from helpers import assert_mean, draw
from hypothesis import given
from hypothesis import strategies as st

from rmft.environments import RewardTable, draw_rewards
from rmft.environments.processes import TABULAR
from rmft.streams import BLOCK, blocks, stream

STATIONARY = ("uniform", "gaussian", "gamma", "bernoulli")
words = st.lists(st.one_of(st.integers(), st.text()), max_size=3)


def assert_same(one: RewardTable, other: RewardTable) -> None:
    np.testing.assert_array_equal(one.rewards, other.rewards)
    np.testing.assert_array_equal(one.means, other.means)
    np.testing.assert_array_equal(one.clipped_means, other.clipped_means)


def membership(mixture: RewardTable, processes: tuple[str, ...], name: str = "test") -> np.ndarray:
    """Return which process served each instance (n,), by finding its rewards in the tables of single processes."""
    singles = [draw_rewards(0, name, [process], mixture.shape).rewards for process in processes]
    same = np.array([(single == mixture.rewards).all(axis=(1, 2)) for single in singles])
    assert (same.sum(axis=0) == 1).all(), "an instance is of no process, or of several"
    return same.argmax(axis=0)


@given(root=st.integers(min_value=0), keys=words)
def test_same_words_name_the_same_numbers_in_whatever_order_streams_are_opened(root, keys):
    first = stream(root, "action", *keys).random(4)
    stream(root, "sampling", *keys).random(9)
    np.testing.assert_array_equal(stream(root, "action", *keys).random(4), first)


@given(one=words, other=words)
def test_different_words_name_different_numbers(one, other):
    same = (stream(0, "action", *one).random(4) == stream(0, "action", *other).random(4)).all()
    assert same == (one == other)


def test_streams_of_different_words_are_uncorrelated():
    named = [
        stream(0, "action"),
        stream(1, "action"),
        stream(0, "environment"),
        stream(0, "action", 1),
        stream(0, "action", "1"),
        stream(0, "action", 1, 23),
        stream(0, "action", 12, 3),
        stream(0, "action", "a", "bc"),
        stream(0, "action", "ab", "c"),
        stream(0, "action", "bc", "a"),
        stream(0, "action", "a\x1fbc"),
    ]
    size = 20_000
    correlation = np.corrcoef([generator.random(size) for generator in named])
    assert all(abs(correlation[pair]) < 4 / np.sqrt(size) for pair in combinations(range(len(named)), 2))


@given(instances=st.integers(0, 3 * BLOCK + 1))
def test_blocks_cover_every_instance_once_and_only_the_last_is_short(instances):
    sizes = [size for _, size in blocks(instances)]
    assert sum(sizes) == instances
    assert all(size == BLOCK for size in sizes[:-1])
    assert [block for block, _ in blocks(instances)] == list(range(len(sizes)))


@given(
    process=st.sampled_from(sorted(TABULAR)),
    n=st.integers(1, 6),
    more_instances=st.integers(0, 6),
    horizon=st.integers(1, 6),
    more_rounds=st.integers(0, 6),
    d=st.integers(2, 5),
)
def test_an_instance_and_a_round_are_the_same_in_a_larger_set(process, n, more_instances, horizon, more_rounds, d):
    larger = draw(process, n + more_instances, horizon + more_rounds, d)
    assert_same(draw(process, n, horizon, d), larger.head(n, horizon))


@pytest.mark.parametrize("process", TABULAR)
def test_an_instance_is_the_same_when_the_set_grows_past_a_block(process):
    larger = draw(process, 2 * BLOCK + 3, 2, 2)
    for n in (BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 1):
        assert_same(draw(process, n, 2, 2), larger.head(n, 2))


@pytest.mark.parametrize("process", ["uniform", "gaussian", "gamma", "bernoulli", "sine-trend", "gradual-variation"])
def test_the_second_block_is_no_copy_of_the_first(process):
    rewards = draw(process, 2 * BLOCK, 1, 2).rewards[:, 0, 0]
    assert abs(np.corrcoef(rewards[:BLOCK], rewards[BLOCK:])[0, 1]) < 4 / np.sqrt(BLOCK)


@pytest.mark.parametrize("n", [4, 12, BLOCK, BLOCK + 4])
def test_each_process_of_a_mixture_serves_equally_many_instances(n):
    mixture = draw_rewards(0, "test", STATIONARY, (n, 2, 3))
    np.testing.assert_array_equal(np.bincount(membership(mixture, STATIONARY), minlength=4), n // 4)


def test_in_a_mixture_every_run_of_k_instances_is_a_fresh_permutation_of_the_k_processes():
    served = membership(draw_rewards(0, "test", STATIONARY, (BLOCK, 2, 2)), STATIONARY).reshape(-1, 4)
    np.testing.assert_array_equal(np.sort(served, axis=1), np.tile(np.arange(4), (len(served), 1)))
    assert_mean(served[:, :, None] == np.arange(4), 1 / 4)
    assert_mean((served[:-1] == served[1:]).mean(axis=1), 1 / 4)


@given(
    processes=st.lists(st.sampled_from(sorted(TABULAR)), min_size=2, max_size=5, unique=True),
    n=st.integers(1, 12),
    more_instances=st.integers(0, 12),
    horizon=st.integers(1, 5),
    more_rounds=st.integers(0, 5),
)
def test_a_mixture_is_the_same_in_a_larger_set(processes, n, more_instances, horizon, more_rounds):
    larger = draw_rewards(0, "test", processes, (n + more_instances, horizon + more_rounds, 3))
    assert_same(draw_rewards(0, "test", processes, (n, horizon, 3)), larger.head(n, horizon))


def test_a_mixture_is_the_same_when_the_set_grows_past_a_block():
    larger = draw_rewards(0, "test", STATIONARY, (BLOCK + 9, 2, 2))
    for n in (BLOCK - 1, BLOCK, BLOCK + 1):
        assert_same(draw_rewards(0, "test", STATIONARY, (n, 2, 2)), larger.head(n, 2))


@pytest.mark.parametrize("process", ["uniform", "gaussian", "gamma", "bernoulli", "sine-trend", "gradual-variation"])
def test_reward_sets_of_another_name_or_seed_are_independent(process):
    shape = (BLOCK, 1, 2)
    drawn = [
        draw_rewards(root, name, [process], shape).rewards[:, 0, 0]
        for root, name in ((0, "train"), (0, "held-out"), (1, "train"))
    ]
    correlation = np.corrcoef(drawn)
    assert np.abs(correlation[np.triu_indices(3, 1)]).max() < 4 / np.sqrt(BLOCK)
