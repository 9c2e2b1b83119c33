import itertools

import pytest

from mtpdeploy.engines.sglang import flag_table
from mtpdeploy.engines.sglang.flag_table import SHORTHANDS, Span, Spelling, find, negation, spell
from mtpdeploy.engines.sglang.versions import NEWEST, Version, parse_version

TABLE = flag_table._table()
RELEASES = [version for text in TABLE.versions if (version := parse_version(text))]


def test_releases_are_ordered_with_post_releases_after_their_release() -> None:
    """
    0.5.9 < 0.5.10 < 0.5.10.post1 < 0.5.11, by number and not by letter; the table is in that order.
    """
    wanted = ["0.5.9", "0.5.10", "0.5.10.post1", "0.5.11"]
    mixed = [version for text in (wanted[3], wanted[2], *wanted[:2]) if (version := parse_version(text))]

    assert wanted == [str(version) for version in sorted(mixed)]
    assert sorted(RELEASES) == RELEASES
    assert NEWEST == RELEASES[-1]


@pytest.mark.parametrize("version", ["0.5.20", "0.5.21", "0.5.22", "0.5.23"])
@pytest.mark.parametrize("name", ["cuda_graph_max_bs", "cuda_graph_bs"])
def test_a_name_that_became_an_ambiguous_prefix_is_never_passed(name: str, version: str) -> None:
    """
    From 0.5.20 `--cuda-graph-max-bs` is only the beginning of two options, and argparse exits with 2.
    """
    record, at = find(name), parse_version(version)
    assert record is not None
    assert at is not None
    option = "--" + name.replace("_", "-")
    longer = {s.option for f in TABLE.flags for s in f.spellings if accepts(s, at)}

    assert option not in longer
    assert {f"{option}-decode", f"{option}-prefill"} <= longer
    assert f"{option}-decode" == spell(record, at)


@pytest.mark.parametrize("short", sorted(SHORTHANDS))
def test_a_shorthand_is_what_argparse_would_complete(short: str) -> None:
    """
    In every release exactly one option begins like the shorthand, and it is one of the flag that we take.
    """
    start = "--" + short.replace("_", "-")
    completed = [
        {
            f.name
            for f in TABLE.flags
            for s in f.spellings
            if s.option.startswith(start) and accepts(s, version)
        }
        for version in RELEASES
    ]

    assert [{SHORTHANDS[short]}] * len(RELEASES) == completed


def test_an_option_that_can_be_turned_off_knows_how() -> None:
    """
    `--no-…` exists only where argparse's BooleanOptionalAction makes it.
    """
    plain = find("trust_remote_code")
    assert plain is not None

    assert negation(plain, NEWEST) is None
    assert [f"--no-{s.option[2:]}" for f in TABLE.flags if f.negations for s in f.spellings] == [
        s.option for f in TABLE.flags for s in f.negations
    ]


def test_every_record_has_one_shape_and_a_spelling_in_every_release_that_has_the_flag() -> None:
    """
    Shapes tile exactly the columns that the spellings cover, and choices fit their kind.
    """
    for record in TABLE.flags:
        shaped = list(itertools.chain.from_iterable(columns(shape.span) for shape in record.shapes))
        spelled = {c for s in record.spellings for span in s.spans for c in columns(span)}

        assert len(set(shaped)) == len(shaped), record.name
        assert spelled == set(shaped), record.name
        assert sorted(shaped) == shaped, record.name
        for shape in record.shapes:
            kinds = {type(choice) for choice in shape.choices or ()}
            assert kinds <= {{"int": int}.get(shape.kind, str)}, record.name


def test_spans_are_apart_and_inside_the_table() -> None:
    """
    No span of one spelling, field or variable touches the next; a deprecated one lies inside an accepted one.
    """
    owners = [s for f in TABLE.flags for s in (*f.spellings, *f.negations)]
    runs = [s.spans for s in owners] + [s.deprecated for s in owners]
    runs += [f.spans for record in TABLE.flags for f in record.fields] + [v.spans for v in TABLE.variables]

    for spans in runs:
        assert all(0 <= first <= last < len(RELEASES) for first, last in spans)
        assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(spans))
    for spelling in owners:
        accepted = {c for span in spelling.spans for c in columns(span)}
        assert {c for span in spelling.deprecated for c in columns(span)} <= accepted, spelling.option


def test_no_option_string_belongs_to_two_flags() -> None:
    """
    Every name of the table, old or new, leads to one record.
    """
    names = [
        {f.name, *(s.option[2:].replace("-", "_") for s in f.spellings), *(old.name for old in f.fields)}
        for f in TABLE.flags
    ]

    assert len(set().union(*names)) == sum(map(len, names))


def columns(span: Span) -> range:
    """
    The columns of a span.
    """
    return range(span[0], span[1] + 1)


def accepts(spelling: Spelling, version: Version) -> bool:
    """
    Whether the parser of that release takes the option string.
    """
    column = RELEASES.index(version)
    return any(first <= column <= last for first, last in spelling.spans)
