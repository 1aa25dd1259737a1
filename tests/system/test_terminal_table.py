"""Tables fit the terminal: nothing is cut, columns go by rank, and what is piped is whole."""

from __future__ import annotations

import pytest
from screens import Screen

from gemm_tuner.system.terminal_table import Column, print_table

COLUMNS = (
    Column("name", wraps=True),
    Column("us", is_number=True),
    Column("often", is_number=True, rank=1),
    Column("seldom", is_number=True, rank=2),
)
ROWS = [("one two three four five", "123456.78", "0.123", "987.6"), ("six", "1.00", "1.000", "")]


def printed(width: int, rows: list[tuple[str, ...]] = ROWS) -> tuple[list[str], tuple[str, ...]]:
    screen = Screen(width)
    left_out = print_table(screen.console, "title", COLUMNS, rows)
    return screen.lines, left_out


def test_columns_go_by_rank_until_a_row_takes_one_line() -> None:
    full = max(map(len, printed(200)[0]))
    assert printed(full)[1] == ()
    for width, left_out in ((full - 4, ("seldom",)), (34, ("often", "seldom"))):
        lines, gone = printed(width)
        assert gone == left_out
        assert len(lines) == 2 + len(ROWS)
        assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", range(18, 34))
def test_where_no_row_fits_the_name_wraps_at_words_and_numbers_stay_whole(width: int) -> None:
    lines, _ = printed(width)
    assert max(map(len, lines)) <= width
    found = " ".join(lines).split()
    for cell in ("one", "two", "three", "four", "five", "six", "123456.78", "1.00"):
        assert cell in found


def test_a_long_word_is_folded_and_not_cut() -> None:
    lines, _ = printed(40, [("x" * 100, "1.00", "", "")])
    assert "".join(lines).count("x") == 100


def test_a_configurations_name_is_broken_behind_fields() -> None:
    name = "my_rows_BLOCK_M64_BLOCK_N32_num_warps4_num_stages2"
    lines, _ = printed(46, [(f"of {name}", "1.00", "", "")])
    words = [word for line in lines[2:] for word in line.split() if word != "1.00"]
    assert "".join(words) == f"of{name}" and len(words) == 3
    assert all(word.endswith("_") and word[-2].isdigit() for word in words[1:-1])
    blocks = printed(12, [("a_b_c_d_e_f_g_h_i_j_k_l", "1", "", "")])[0][2:]
    assert "".join("".join(blocks).replace(" 1", "").split()) == "a_b_c_d_e_f_g_h_i_j_k_l"


def test_a_column_that_holds_nothing_is_not_shown() -> None:
    rows = [(name, us, "", seldom) for name, us, _, seldom in ROWS]
    for width in (0, 200):
        lines, left_out = printed(width, rows)
        assert "seldom" in lines[1] and "often" not in lines[1]
        assert left_out == ()


def test_a_pipe_gets_all_of_it() -> None:
    long = ("word " * 100).strip()
    lines, left_out = printed(0, [(long, "1.00", "2.00", "3.00")])
    assert left_out == ()
    assert lines[2].split() == [*long.split(), "1.00", "2.00", "3.00"]


@pytest.mark.parametrize("width", [0, 30])
def test_text_is_no_markup_and_no_command_to_the_terminal(width: int) -> None:
    lines, _ = printed(width, [("[red]odd\x1b[31m\x07", "1.00", "", "")])
    assert any("[red]odd [31m" in line for line in lines)
    assert not any(set("\x1b\x07") & set(line) for line in lines)


@pytest.mark.parametrize("width", [0, 30])
def test_columns_without_titles(width: int) -> None:
    screen = Screen(width)
    print_table(
        screen.console, "", (Column(""), Column("", wraps=True)), [("key", "some words of a value"), ("k", "v")]
    )
    assert screen.lines[0].split()[:2] == ["key", "some"]
    assert screen.lines[-1].split() == ["k", "v"]


def test_a_title_breaks_where_it_may_and_is_whole_in_a_pipe() -> None:
    columns = (Column("a"), Column("long/\nname", is_number=True))
    for width, titles in ((0, ["a long/name"]), (9, ["long/", "a name"])):
        screen = Screen(width)
        print_table(screen.console, "", columns, [("x", "1.0")])
        assert [" ".join(line.split()) for line in screen.lines[:-1]] == titles
