"""Where runs were measured, gathered from their records."""

from contextlib import redirect_stdout
from io import StringIO

from builders import a_study
from fake_study import play_all
from scalewise import results
from scalewise.analysis.explain.environment import environment_of
from scalewise.record.write import write_json


def test_an_explanation_says_where_its_runs_were_measured(tmp_path):
    study = a_study(topologies=["1x1", "1x2"])
    write_json(tmp_path / "study.json", {"schema": 1, **study.to_dict()})
    with redirect_stdout(StringIO()):
        records = list(play_all(study, tmp_path))
    (explanation,) = results.explanations(tmp_path)
    environment = explanation.environment
    assert environment.devices == ("simulated",) and environment.frameworks == ("fake",)
    assert environment.runs == len(records) == 2
    assert environment.hosts == (records[0].ranks[0].host,)
    assert environment.started == min(record.started for record in records)
    assert len(environment.pythons) == 1  # One value, because all runs agree.


def test_damaged_facts_are_left_out(tmp_path):
    with redirect_stdout(StringIO()):
        (record,) = play_all(a_study(topologies=["1x1"]), tmp_path)
    record.environment.clear()
    record.environment.update(engine="gone", variables=["x"], cores=None)
    environment = environment_of([record])
    assert (environment.frameworks, environment.variables, environment.cores) == ((), {}, ())
    assert environment_of([]) is None
