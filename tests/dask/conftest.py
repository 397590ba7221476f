"""Real clusters of processes on this machine, started once."""

import pytest


@pytest.fixture(scope="session")
def clusters():
    """Return clients of clusters by their number of workers; none is the current client."""
    from distributed import Client, LocalCluster

    started = {}

    def client_of(n_workers):
        if n_workers not in started:
            cluster = LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                silence_logs=50,
            )
            started[n_workers] = cluster, Client(cluster, set_as_default=False)
        return started[n_workers][1]

    yield client_of
    for cluster, client in started.values():
        client.close()
        cluster.close()


@pytest.fixture
def client(clusters):
    """A client of two workers, current during the test."""
    found = clusters(2)
    with found.as_current():
        yield found
