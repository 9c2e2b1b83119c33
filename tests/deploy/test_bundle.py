"""
An ascent in one file: what is in it, under which names, and that the same journal makes the same bytes.
"""

import io
import re
import tarfile
from pathlib import Path

import pytest
from msgspec import json

from mtpdeploy.deploy import bundle as module
from mtpdeploy.deploy.bundle import bundle
from mtpdeploy.deploy.dossier import read_dossier
from mtpdeploy.deploy.redaction import Known, Redactor
from mtpdeploy.engines.sglang import SGLANG
from tests.deploy.examples import AT
from tests.deploy.shelf import ID, keep


def packed(folder: Path, redactor: Redactor | None = None) -> bytes:
    """
    The bundle of an ascent.
    """
    return bundle(folder, read_dossier(folder, SGLANG), "<p>page", redactor or Redactor())


def members(content: bytes) -> dict[str, bytes]:
    """
    The files in a bundle by name.
    """
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        found = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name: file.read() for name, file in found.items() if file is not None}


class TestBundle:
    def test_what_is_in_it(self, tmp_path: Path) -> None:
        """
        The page, what the ascent and its attempts left, readable by nobody else, of the time of the ascent.
        """
        content = packed(keep(tmp_path))
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            kinds = {(m.mode, m.mtime, m.uid, m.gid, m.uname, m.gname) for m in tar.getmembers()}
        of_attempts = [
            f"attempt-{number}/{name}"
            for number in (1, 2)
            for name in ("attempt.json", "outcome.json", "launch.sh", "log")
        ]

        assert {(0o600, int(AT), 0, 0, "", "")} == kinds
        assert [
            f"{ID}/{name}"
            for name in ("report.html", "ascent.json", "clients.jsonl", "events.jsonl", *of_attempts)
        ] == list(members(content))

    def test_the_same_journal_makes_the_same_bytes(self, tmp_path: Path) -> None:
        """
        Whenever and wherever it is packed.
        """
        assert packed(keep(tmp_path / "a")) == packed(keep(tmp_path / "b"))

    def test_records_stay_what_they_were(self, tmp_path: Path) -> None:
        """
        As data; scripts and logs to the byte.
        """
        folder = keep(tmp_path)
        found = members(packed(folder))
        record, log = (folder / f"{ID}-1" / name for name in ("attempt.json", "a.log"))

        assert json.decode(record.read_bytes()) == json.decode(found[f"{ID}/attempt-1/attempt.json"])
        assert log.read_bytes() == found[f"{ID}/attempt-1/log"]

    def test_a_long_log_is_cut_in_the_middle(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        At line ends, so that no word that had to be left out is cut in two; how much is said.
        """
        monkeypatch.setattr(module, "HEAD_BYTES", 100)
        monkeypatch.setattr(module, "TAIL_BYTES", 200)
        folder = keep(tmp_path)
        lines = [f"line {number:03d} hf_AbCdEfGhIjKlMnOpQrStUv" for number in range(100)]
        (folder / f"{ID}-1" / "a.log").write_text("\n".join(lines) + "\n")
        found = members(packed(folder))[f"{ID}/attempt-1/log"].decode().splitlines()

        assert [f"line {number:03d} …" for number in (0, 1)] == found[:2]
        assert re.fullmatch(r"\[mtpdeploy: 3,[0-9]{3} of 3,500 bytes are left out here\]", found[2])
        assert [f"line {number:03d} …" for number in range(100 - len(found) + 3, 100)] == found[3:]
        assert not [line for line in found if "hf_" in line]

    def test_damaged_records_are_cleaned_as_text(self, tmp_path: Path) -> None:
        """
        What is no JSON goes through the same rules.
        """
        folder = keep(tmp_path)
        (folder / "events.jsonl").write_bytes(b'{"HF_TOKEN": "PLAINWORD", "at": mybox-7\n\xff\n')
        found = members(packed(folder, Redactor([Known("host", "mybox-7")])))[f"{ID}/events.jsonl"]

        assert '{"HF_TOKEN": "…", "at": host-1\n\ufffd\n'.encode() == found

    def test_two_runs_of_one_number(self, tmp_path: Path) -> None:
        """
        Neither hides the other.
        """
        folder = keep(tmp_path)
        record = folder / f"{ID}-2" / "attempt.json"
        record.write_bytes(record.read_bytes().replace(b'"attempt":2', b'"attempt":1'))
        found = members(packed(folder))

        assert f"{ID}/attempt-1/log" in found
        assert f"{ID}/attempt-1-2/log" in found
