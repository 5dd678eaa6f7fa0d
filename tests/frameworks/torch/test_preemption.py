"""A job that is told to go: ranks agree on their last step."""

from scalewise.frameworks.loop import Preemption


class Alone:
    """A session of one rank, and a probe that counts its laps."""

    def __init__(self):
        self.asked, self.laps = [], []

    def max_over_ranks(self, numbers):
        self.asked.append(list(numbers))
        return list(numbers)

    def lap(self, name):
        self.laps.append(name)


def test_ranks_look_about_once_a_second_and_leave_when_asked(tmp_path):
    session = Alone()
    preemption = Preemption(tmp_path, session)
    assert not preemption.after_step(session)
    asked, wish = session.asked[0]
    assert asked == 0 and -wish > 100  # Many steps fit into a second here.
    (tmp_path / "leave").touch()
    steps = 1
    while not preemption.after_step(session):
        steps += 1
    assert steps == -wish and session.laps == ["other", "other"]


def test_the_rank_with_the_slowest_steps_says_when_to_look_again(tmp_path):
    session = Alone()
    session.max_over_ranks = lambda numbers: [numbers[0], -3]
    preemption = Preemption(tmp_path, session)
    preemption.after_step(session)
    (tmp_path / "leave").touch()
    assert [preemption.after_step(session) for _ in range(3)] == [False, False, True]
