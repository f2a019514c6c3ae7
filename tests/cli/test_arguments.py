"""What commands share: options that are read, and errors in one line."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from petastore.cli.arguments import errors_in_one_line, json_options, settings_of
from petastore.errors import InvalidArgumentError


def test_options_of_the_storage_are_a_json_object() -> None:
    assert json_options('{"anon": true, "client": {"region": "x"}}') == {"anon": True, "client": {"region": "x"}}
    assert json_options("{}") == {}


@pytest.mark.parametrize(("text", "reason"), [("anon=true", "is no JSON"), ("[1]", r"such as \{\"anon\": true\}")])
def test_other_text_is_refused_with_what_to_write(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"--storage-options takes a JSON object.*{reason}"):
        json_options(text)


def test_of_a_setting_that_is_given_twice_the_last_one_counts() -> None:
    assert settings_of(["a=1", "b=", "a=x=y"]) == {"a": "x=y", "b": ""}


@pytest.mark.parametrize("pair", ["a", "=1", ""])
def test_a_setting_without_a_key_or_an_equals_sign_is_refused(pair: str) -> None:
    with pytest.raises(InvalidArgumentError, match="a setting is written as key=value"):
        settings_of(["ok=1", pair])


def test_an_error_of_ours_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, errors_in_one_line(debug=False):
        raise InvalidArgumentError("there is no [bold]such[/bold] column " + "x" * 200)
    assert ended.value.exit_code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "petastore: there is no [bold]such[/bold] column " + "x" * 200 + "\n"


@pytest.mark.parametrize(("debug", "problem"), [(True, InvalidArgumentError("ours")), (False, ValueError("a bug"))])
def test_with_debug_and_of_a_bug_the_traceback_is_seen(debug: bool, problem: Exception) -> None:
    with pytest.raises(type(problem)) as raised, errors_in_one_line(debug=debug):
        raise problem
    assert raised.value is problem


def test_a_block_that_ends_well_says_nothing(capsys: pytest.CaptureFixture[Any]) -> None:
    with errors_in_one_line(debug=False):
        pass
    assert capsys.readouterr() == ("", "")
