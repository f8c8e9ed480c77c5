"""What all ranks decide from what each of them wants."""

from hypothesis import given, strategies as st

from mpibow.data import Change, fixed
from mpibow.run.coordinator import Coordinator, Request, settle_requests

NOTHING = Request()
REQUESTS = st.lists(
    st.builds(Request, st.sampled_from(["", "SIGTERM", "stop.minutes 1"]), st.booleans(), st.booleans()), min_size=1
)


def test_attention():
    for request in (Request("SIGUSR1"), Request(save=True), Request(resync=True)):
        assert request.attention == 1.0


def test_the_first_rank_that_wants_to_stop_is_named():
    wishes = [NOTHING, Request("SIGUSR1"), Request("SIGTERM")]
    assert settle_requests(wishes) == (Request("SIGUSR1"), 1)
    assert settle_requests(wishes[::-1]) == (Request("SIGTERM"), 0)


@given(REQUESTS)
def test_no_wish_is_lost(requests: list[Request]):
    together, rank = settle_requests(requests)
    assert bool(together.stop) == any(request.stop for request in requests)
    assert together.stop == requests[rank].stop
    assert together.save == any(request.save for request in requests)
    assert together.resync == any(request.resync for request in requests)


def test_a_change_begins_behind_what_is_prefetched():
    coordinator = Coordinator(fixed(4, (2, 2)), prefetch=3)
    assert coordinator.announce(10, (1, 3)) == 14
    timeline = coordinator.timeline()
    assert timeline.counts(13) == (2, 2)
    assert timeline.counts(14) == (1, 3)
    assert timeline.changes[-1] == Change(14, 14 * 4 * 4, (1, 3))


def test_an_execution_is_announced_as_learners_are():
    coordinator = Coordinator(fixed(4, (2, 2), execution="streams"), prefetch=3)
    assert coordinator.announce(10, (2, 2), "fused") == 14
    assert (coordinator.announced, coordinator.execution) == ((2, 2), "fused")
    assert coordinator.timeline().changes[-1] == Change(14, 14 * 4 * 4, (2, 2), "fused")
    coordinator.announce(20, (1, 2))
    assert (coordinator.announced, coordinator.execution) == ((1, 2), "fused")


def test_changes_keep_their_order():
    coordinator = Coordinator(fixed(4, (2, 2)), prefetch=3)
    assert [coordinator.announce(10, (k, 1)) for k in (1, 2, 3)] == [14, 15, 16]
    assert coordinator.announce(40, (1, 1)) == 44


def test_after_20000_changes_it_holds_those_that_can_be_asked_for():
    """Every iteration announces a change, as no tuner does; the pipeline reads three iterations ahead."""
    coordinator, whole = Coordinator(fixed(4, (1, 2)), prefetch=3), fixed(4, (1, 2))
    for t in range(20_000):
        counts = (1 + t % 3, 1 + t % 2)
        assert coordinator.announce(t, counts) == t + 4
        whole = whole.since(t - 9).announce(t + 4, counts)
        asked = range(max(t - 1, 0), t + 5)
        assert [coordinator.timeline().change(i) for i in asked] == [whole.change(i) for i in asked]
        assert len(coordinator.timeline().changes) <= 3 + 3
    assert coordinator.kept(20_000).changes == coordinator.timeline().changes[1:]


def test_a_checkpoint_leaves_out_recorded_changes_to_come():
    recorded = fixed(4, (1,))
    for t in range(1, 50):
        recorded = recorded.announce(t, (1 + t % 2,))
    kept = Coordinator(recorded, prefetch=3, recorded=True).kept(20)
    assert kept == recorded.since(19).until(20)
    assert len(kept.changes) == 2
    assert Coordinator(recorded, prefetch=3).kept(20) == recorded.since(19)
