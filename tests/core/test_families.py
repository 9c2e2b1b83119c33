from msgspec import structs

from mtpdeploy.core.families import bystanders
from tests.core.crowds import facts, ours, process, server, supervised, tree


def test_the_children_of_a_run_are_no_bystanders() -> None:
    """
    SGLang's children overwrite their environment with their title (setproctitle), so that they carry no
    run marker: they belong to the run by descent.
    """
    members = supervised(port=31000)
    nameless = tuple(structs.replace(member, run=None) for member in members)

    assert [] == bystanders(facts(*nameless, runs=(ours("r", members, server(31000)),)))


def test_a_server_that_is_not_ours_is_one_bystander() -> None:
    """
    Its scheduler and detokenizer are part of it, and it is known by its port.
    """
    found = bystanders(facts(*tree(port=31000)))

    assert [({100, 101, 102, 103}, (31000,))] == [
        ({m.id.pid for m in family.members}, family.ports) for family in found
    ]


def test_others_of_interest_stand_by_themselves() -> None:
    """
    A server of another user and a process that only holds a card are told one by one.
    """
    stranger = process(300, "/usr/bin/python3 train.py", kind="")
    other = process(400, user="eve")

    assert [[300], [400]] == [[m.id.pid for m in f.members] for f in bystanders(facts(stranger, other))]
