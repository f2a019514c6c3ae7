"""Tests of shared command-line options, and of errors in one line."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from petastore.cli.terminal import errors_in_one_line, json_options, settings_of
from petastore.errors import InvalidArgumentError


def test_storage_options_argument_is_a_json_object() -> None:
    assert json_options('{"anon": true, "client": {"region": "x"}}') == {"anon": True, "client": {"region": "x"}}
    assert json_options("{}") == {}


@pytest.mark.parametrize(("text", "reason"), [("anon=true", "is not JSON"), ("[1]", r"such as \{\"anon\": true\}")])
def test_invalid_option_text_raises_with_advice(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"--storage-options must be a JSON object.*{reason}"):
        json_options(text)


def test_last_of_repeated_key_value_settings_is_used() -> None:
    assert settings_of(["a=1", "b=", "a=x=y"]) == {"a": "x=y", "b": ""}


@pytest.mark.parametrize("pair", ["a", "=1", ""])
def test_setting_without_a_key_or_an_equals_sign_raises(pair: str) -> None:
    with pytest.raises(InvalidArgumentError, match="a setting must have the form key=value, got"):
        settings_of(["ok=1", pair])


def test_petastore_error_prints_one_line_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, errors_in_one_line(debug=False):
        raise InvalidArgumentError("there is no [bold]such[/bold] column " + "x" * 200)
    assert ended.value.exit_code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "petastore: there is no [bold]such[/bold] column " + "x" * 200 + "\n"


@pytest.mark.parametrize(("debug", "problem"), [(True, InvalidArgumentError("ours")), (False, ValueError("a bug"))])
def test_exception_is_not_reduced_to_one_line_with_debug_or_for_bugs(debug: bool, problem: Exception) -> None:
    with pytest.raises(type(problem)) as raised, errors_in_one_line(debug=debug):
        raise problem
    assert raised.value is problem


def test_command_without_an_error_prints_no_message(capsys: pytest.CaptureFixture[Any]) -> None:
    with errors_in_one_line(debug=False):
        pass
    assert capsys.readouterr() == ("", "")
