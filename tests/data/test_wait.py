"""The warning that learners wait for data: once, and again only where it has become much worse."""

from mpibow.data.loading import Watch


def test_once_and_again_when_it_doubles():
    watch = Watch("data", "do this")
    said = [
        watch(seconds, waited)
        for seconds, waited in (
            (100.0, 50.0),  # what was waited for before is not counted
            (109.9, 59.0),
            (110.0, 50.5),  # 5 % are fine
            (110.0, 50.6),
            (120.0, 52.4),  # 12 %, not yet twice as much
            (120.0, 52.5),
            (200.0, 60.0),
            (200.0, 90.0),
            (200.0, 149.0),
        )
    ]
    assert said == [
        "", "", "",
        "warning: learners wait for data 6% of the time; do this",
        "",
        "warning: learners wait for data 12% of the time; do this",
        "",
        "warning: learners wait for data 40% of the time; do this",
        "warning: learners wait for data 99% of the time; do this",
    ]  # fmt: skip


def test_a_fast_reader_is_not_spoken_of():
    watch = Watch("data", "do this")
    assert [watch(float(second), second / 21) for second in range(1000)] == [""] * 1000


def test_the_first_run_is_not_counted():
    watch = Watch("data", "do this")
    assert [watch(5.0 + second, 5.0) for second in range(100)] == [""] * 100
