"""A watcher of a study that keeps all it receives."""


class RecordingWatcher:
    """Keeps what ``study.run`` reports."""

    def __init__(self):
        self.opening, self.runs, self.causes, self.problems = None, [], [], []
        self.notes = []

    def begin(self, todo, finished, request):
        self.opening = (todo, finished)

    def started(self, number, run):
        self.runs.append(run)

    def progressed(self, run, share):
        assert 0.0 <= share <= 1.0

    def ended(self, run, cause, seconds):
        self.causes.append(cause)

    def warn(self, problem):
        self.problems.append(str(problem))

    def note(self, sentence):
        self.notes.append(sentence)
