"""Labels of a logarithmic axis: those that would run into each other are left out."""

from reports.figures.lines import apart


def test_of_two_labels_that_would_overlap_the_larger_stays() -> None:
    assert apart({1, 3, 7, 15, 31, 60, 63}) == [1, 3, 7, 15, 31, 63]


def test_labels_that_keep_their_distance_all_stay() -> None:
    assert apart([16, 1, 8, 2, 4]) == [1, 2, 4, 8, 16]
    assert apart([]) == []
