"""The cluster that other tests run on is one: nodes, users, devices, links."""

import pytest

pytestmark = pytest.mark.slurm


def test_a_job_reaches_two_nodes(cluster, desk):
    (desk / "job.sh").write_text("#!/bin/sh\nsrun hostname\n")
    done = cluster.run("sbatch", "--wait", "-N2", "-n2", "--output=said", "job.sh", cwd=desk)
    assert done.returncode == 0, done.stderr
    assert sorted((desk / "said").read_text().split()) == cluster.names[:2]
