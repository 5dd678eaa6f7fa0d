"""A watcher of a study that keeps all it receives."""


class RecordingWatcher:
    """Keeps what ``study.run`` reports."""

    def __init__(self):
        self.opening, self.runs, self.causes, self.problems = None, [], [], []
        self.notes, self.states = [], []

    def begin(self, todo, finished, request):
        self.opening = (todo, finished)

    def started(self, number, run):
        self.runs.append(run)

    def progressed(self, run, status):
        assert status.run == run and status.is_active
        assert 0.0 <= (status.progress.share or 0.0) <= 1.0
        self.states.append(status)

    def ended(self, run, cause, seconds):
        self.causes.append(cause)

    def warn(self, problem):
        self.problems.append(str(problem))

    def note(self, sentence):
        self.notes.append(sentence)
