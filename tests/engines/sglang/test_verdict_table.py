from tests.engines.sglang import verdict_table


def test_every_case_of_the_reports_has_its_verdict() -> None:
    """
    The table of cases by verdicts holds each with its kind, and all are right.
    """
    rows = verdict_table.rows()

    text = verdict_table.table(rows)

    assert [] == [row for row in rows if not row.right]
    assert len(rows) >= 76
    assert text.endswith(f"{len(rows):3} of {len(rows):3}  in all")
    assert all(row.name in text and row.kind in text for row in rows)
