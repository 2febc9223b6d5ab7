"""What answers cost, and that no call is let through which could pass the limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmft.endpoint.budget import REFRESH_EVERY, SpendingLimit, Usage, cost
from rmft.errors import InputError
from rmft.params.endpoint import Prices

PRICES = Prices(input=0.15, cached_input=0.075, output=0.6, training=3.0)
COUNTS = st.integers(0, 10**7)


def test_cost_is_what_the_price_list_says_of_a_million_tokens_each():
    million = 10**6
    assert cost(Usage(prompt=million), PRICES) == pytest.approx(0.15)
    assert cost(Usage(prompt=million, cached=million), PRICES) == pytest.approx(0.075)
    assert cost(Usage(completion=million), PRICES) == pytest.approx(0.6)
    assert cost(Usage(trained=million), PRICES) == pytest.approx(3.0)
    assert cost(Usage(1, 400, 300, 20), PRICES) == pytest.approx((100 * 0.15 + 300 * 0.075 + 20 * 0.6) / million)


@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS), max_size=5))
def test_the_cost_of_usage_that_is_added_up_is_the_sum_of_the_costs(parts):
    used = [Usage(*part) for part in parts]
    assert cost(sum(used, Usage()), PRICES) == pytest.approx(sum(cost(one, PRICES) for one in used))


def test_usage_is_what_an_answer_states_and_nothing_where_it_states_none():
    details = {"prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": None}}
    assert Usage.of({"usage": {"prompt_tokens": 90, "completion_tokens": 5, **details}}) == Usage(1, 90, 64, 5)
    assert Usage.of({"usage": {"prompt_tokens": 90, "completion_tokens": 5, "prompt_tokens_details": None}}).cached == 0
    apart = {"prompt_tokens": 26, "completion_tokens": 5, **details}  # what is cached is not among the 26
    assert Usage.of({"usage": apart}) == Usage(1, 90, 64, 5)
    assert Usage.of({"id": "file-1"}) == Usage.of({"usage": None}) == Usage()


@given(
    limit=st.floats(0, 0.01),
    calls=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 500), st.floats(0, 1), st.booleans()), max_size=40),
)
def test_whatever_comes_back_the_limit_is_never_passed(limit, calls):
    budget, under_way, spent = SpendingLimit(limit, {"m": PRICES}), [], 0.0
    for prompt, completion, share, lands in calls:
        try:
            under_way.append((budget.reserve("m", prompt, completion), prompt, completion, share))
        except InputError:
            assert budget.committed + cost(Usage(1, prompt, 0, completion), PRICES) > limit
        if lands and under_way:
            reservation, prompt, completion, share = under_way.pop(0)
            used = Usage(1, int(share * prompt), 0, int(share * completion))
            budget.settle(reservation, used)
            spent += cost(used, PRICES)
            assert budget.spent == pytest.approx(spent)
    worst = sum(reservation.dollars for reservation, *_ in under_way)
    assert spent + worst <= limit + 1e-12


def test_the_last_call_that_fits_is_let_through_and_the_next_one_is_refused_with_a_line_that_says_what_to_do():
    one = cost(Usage(1, 1000, 0, 100), PRICES)
    budget = SpendingLimit(3 * one + 1e-12, {"m": PRICES}, spent={"m": Usage(1, 1000, 0, 100)})
    reservations = [budget.reserve("m", 1000, 100) for _ in range(2)]
    assert not budget.allows("m", 1000, 100)
    with pytest.raises(
        InputError, match=r"budget\.dollars: 0\.0002 of 0\.00063 dollars are spent.*raise it"
    ) as refusal:
        budget.reserve("m", 1000, 100)
    assert "\n" not in str(refusal.value)
    budget.settle(reservations[0], None)
    budget.reserve("m", 1000, 100)


def test_a_call_that_may_have_been_paid_for_though_nothing_came_stays_counted():
    budget = SpendingLimit(1.0, {"m": PRICES})
    lost, refused = budget.reserve("m", 1000, 100), budget.reserve("m", 1000, 100)
    budget.settle(lost, lost.most)
    budget.settle(refused, None)
    assert budget.spent == budget.committed == lost.dollars


def test_what_others_have_spent_is_asked_for_now_and_then_and_counts():
    calls = []

    def elsewhere() -> dict[str, Usage]:
        calls.append(len(calls))
        return {"m": Usage(prompt=len(calls) * 10**6)}

    budget = SpendingLimit(0.31, {"m": PRICES}, elsewhere=elsewhere)
    for _ in range(REFRESH_EVERY):
        budget.settle(budget.reserve("m", 10, 0), Usage(1, 10))
    assert len(calls) == 1
    assert budget.spent == pytest.approx(0.15 + REFRESH_EVERY * 10 * 0.15e-6)
    budget.reserve("m", 10, 0)
    assert len(calls) == 2
    with pytest.raises(InputError, match="budget"):
        budget.reserve("m", 10**6, 0)


def test_without_a_limit_nothing_is_refused_nor_looked_at_and_no_prices_are_needed():
    budget = SpendingLimit(None, {}, elsewhere=lambda: pytest.fail("looked"))
    for _ in range(100):
        budget.settle(budget.reserve("m", 10**9, 10**9), Usage(1, 10**9, 0, 10**9))


def test_what_costs_nothing_is_let_through_whatever_others_have_spent_and_no_journal_is_read_for_it():
    free = Prices(input=0, cached_input=0, output=0, training=0)
    budget = SpendingLimit(0.0, {"own": free}, {"own": Usage(1, 9, 0, 9)}, elsewhere=lambda: pytest.fail("looked"))
    budget.settle(budget.reserve("own", 10**9, 10**9), Usage(1, 10**9, 0, 10**9))
    budget.require({"own": Usage(trained=10**9)}, "fine-tuning")
    assert budget.spent == 0


def test_what_is_begun_once_is_priced_as_the_model_that_it_begins_with():
    dear = PRICES.model_copy(update={"training": 30.0})
    budget, million = (
        SpendingLimit(5.0, {"m": PRICES.model_copy(update={"training": 3.0}), "ft:m": dear}),
        Usage(trained=10**6),
    )
    budget.require({"m": million}, "fine-tuning")
    with pytest.raises(InputError, match=r"fine-tuning could cost 30\.0000"):
        budget.require({"ft:m": million}, "fine-tuning")
    with pytest.raises(InputError, match="prices: none are known for 'other'"):
        budget.require({"other": million}, "fine-tuning")
    SpendingLimit(None, {}).require({"other": million}, "fine-tuning")


def test_a_model_without_prices_cannot_be_called_under_a_limit():
    with pytest.raises(InputError, match="prices: none are known for 'ft:m'"):
        SpendingLimit(1.0, {"m": PRICES}).reserve("ft:m", 1, 1)


def test_fine_tuned_models_have_prices_of_their_own():
    dear = PRICES.model_copy(update={"input": 0.3})
    budget = SpendingLimit(1.0, {"m": PRICES, "ft:m": dear})
    assert budget.reserve("ft:m", 1000, 0).dollars == pytest.approx(2 * budget.reserve("m", 1000, 0).dollars)
