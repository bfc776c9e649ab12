"""Mistakes that people make, planted one at a time: each is the first edit proposed."""

import pytest

from optimizer.frameworks.launch_as_read import Controls, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.improve.edits import improve
from tests.improve.improvements import FILES, improved
from tests.improve.mistakes import MISTAKES, ROOM


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_mistake_is_the_first_edit(mistake: str) -> None:
    _, cluster, expected = MISTAKES[mistake]
    if room := ROOM.get(mistake):
        launch = read_launch(FILES[mistake]).launch
        found = improve(launch_as_read(launch, Controls(cluster=cluster, hbm=room), "train.sh"))
    else:
        found = improved(mistake)[2]
    assert found.edits
    first = found.edits[0]
    assert expected in first.names
    assert first.after.fits
    assert first.gain > 0
    assert list(found.edits) == sorted(found.edits, key=lambda edit: (not edit.sure, -edit.expected))
    assert found.best is not None
    assert found.best.gain >= first.gain
