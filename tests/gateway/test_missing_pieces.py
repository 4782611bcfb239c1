"""A part of the data directory that is gone at a start is reported once, with what it held, and served without."""

import logging
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from backends.segment_log.pieces import STORE, STORED_ROWS, Pieces
from tests.gateway.conftest import configuration, scripted
from tollkeeper.cli import app

CONFIG = configuration(("scripted-1", [scripted()]))


@pytest.mark.parametrize("name", ["journal", "budgets"])
async def test_a_missing_part_is_logged_shown_and_served_without(start_gateway, tmp_path, caplog, name) -> None:
    data = tmp_path / "data"
    first = await start_gateway(CONFIG, data=data)
    assert (await first.chat()).status == 200
    page = first.gateway.health()
    assert "pieces_missing" not in page["degraded"] and page["missing_pieces"] == []
    await first.close()
    gone = data / name
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()

    with caplog.at_level(logging.ERROR, "backends.segment_log.pieces"):
        second = await start_gateway(CONFIG, data=data)
    assert [record.message for record in caplog.records if f"/{name} was missing" in record.message]
    page = second.gateway.health()
    assert "pieces_missing" in page["degraded"] and page["status"] == "ready"
    (loss,) = page["missing_pieces"]
    assert loss["piece"] == name and loss["found_at"] and str(tmp_path) not in str(loss)
    if name == "journal":
        assert loss["held"]["bytes_waiting"] > 0
    assert (await second.chat()).status == 200
    await second.close()

    caplog.clear()
    third = await start_gateway(CONFIG, data=data)
    assert third.gateway.health()["missing_pieces"] == [], "it is said once"
    assert not [record for record in caplog.records if "was missing" in record.message]
    (kept,) = Pieces(data).losses()
    assert kept.piece == name
    await third.close()


async def test_a_new_gateway_and_one_of_an_earlier_version_miss_nothing(start_gateway, tmp_path) -> None:
    data = tmp_path / "data"
    first = await start_gateway(CONFIG, data=data)
    assert first.gateway.health()["missing_pieces"] == []
    await first.close()
    shutil.rmtree(data / "pieces")
    shutil.rmtree(data / "journal")
    second = await start_gateway(CONFIG, data=data)
    assert second.gateway.health()["missing_pieces"] == [], "nobody knew that there was one"


async def test_the_database_of_files_is_missed(start_gateway, tmp_path) -> None:
    data = tmp_path / "data"
    first = await start_gateway(CONFIG, data=data)
    (data / "objects.db").write_bytes(b"x" * 100)
    await first.close()
    (data / "objects.db").unlink()
    second = await start_gateway(CONFIG, data=data)
    (loss,) = second.gateway.health()["missing_pieces"]
    assert (loss["piece"], loss["held"]) == ("objects", {"bytes": 100})


def test_a_loss_says_how_many_rows_are_known_to_be_missing(tmp_path: Path) -> None:
    pieces, store = Pieces(tmp_path), tmp_path / "store"
    assert pieces.find_loss(STORE, store, counted_as=STORED_ROWS) is None
    pieces.note(STORE)
    pieces.note(STORED_ROWS, {"rows_of_requests": 124})
    store.mkdir()
    loss = pieces.find_loss(STORE, store, counted_as=STORED_ROWS)
    assert loss is not None and "rows of requests 124" in loss.sentence, "an empty directory is a missing store"
    assert pieces.find_loss(STORE, store, counted_as=STORED_ROWS) is None
    done = CliRunner().invoke(app, ["doctor", "--data", str(tmp_path), "--json"])
    assert "rows of requests 124" in done.stdout and "--forget-losses" in done.stdout
    done = CliRunner().invoke(app, ["doctor", "--data", str(tmp_path), "--json", "--forget-losses"])
    assert "rows of requests" not in done.stdout


def test_notes_that_cannot_be_written_or_read_keep_nobody_from_serving(tmp_path: Path) -> None:
    (tmp_path / "pieces").write_text("a file where the folder would be")
    pieces = Pieces(tmp_path)
    pieces.note("journal")
    assert pieces.find_loss("journal", tmp_path / "journal") is None and pieces.losses() == []
    (tmp_path / "pieces").unlink()
    pieces.note("journal")
    (tmp_path / "pieces" / "journal.json").write_text("{")
    assert pieces.find_loss("journal", tmp_path / "journal") is None
