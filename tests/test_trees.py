"""What tests of whole trees rely on."""

import os

import pytest


@pytest.mark.xdist_group("together")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process")
def test_tests_of_a_group_are_left_to_one_process(request):
    assert request.node.nodeid.endswith("@together")
