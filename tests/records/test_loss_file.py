"""Loss files: what is written is read, and what is no loss file is refused in one line.

Models scored on different things are refused, saying what differs.
"""

import io
import json
import resource
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from txlbench.errors import UserError
from txlbench.records.loss_file import (
    LossFile,
    brief,
    check_agreement,
    check_contexts,
    read_loss_file,
    write_loss_file,
)

GOOD = {
    "losses": np.arange(6, dtype=np.float32).reshape(2, 3),
    "contexts": np.array([16, 32]),
    "positions": np.array([100, 101, 105]),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.npz"


def save(path, **changes):
    content = {**GOOD, **changes}
    np.savez(path, **{key: value for key, value in content.items() if value is not None})


def complaint(path):
    with pytest.raises(UserError) as caught:
        read_loss_file(path)
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    return line


def test_everything_written_is_read(path):
    whole = {"name": "a", "corpus": "c", "split": "test", "vocabulary": "v", "model": "m"}
    file = LossFile(
        **GOOD, **whole, settings={"attention_length": None, "dtype": "fp32"}, longest=64
    )
    write_loss_file(path, file)
    found = read_loss_file(path)
    assert {**whole, "path": path, "longest": 64} == {
        key: getattr(found, key) for key in (*whole, "path", "longest")
    }
    assert found.settings == file.settings
    for key, value in GOOD.items():
        assert np.array_equal(getattr(found, key), value)
    assert found.losses.dtype == np.float32
    assert found.contexts.dtype == found.positions.dtype == np.int64


def test_three_arrays_suffice(path):
    save(path)
    found = read_loss_file(path)
    assert (found.name, found.longest, found.settings) == (None, None, {})
    assert found.title == str(path)


def test_equal_losses_give_equal_bytes(path, tmp_path):
    write_loss_file(path, LossFile(**GOOD, name="a"))
    write_loss_file(tmp_path / "b.npz", LossFile(**GOOD, name="a"))
    assert path.read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("kind", ["<f2", ">f4", "<f8"])
def test_any_floating_numbers_will_do(path, kind):
    save(path, losses=GOOD["losses"].astype(kind), contexts=np.array([16, 32], dtype=">u2"))
    assert read_loss_file(path).losses.tolist() == GOOD["losses"].tolist()


def test_compressed_and_column_major_files_are_read(path):
    np.savez_compressed(path, **{**GOOD, "losses": np.asfortranarray(GOOD["losses"])})
    assert read_loss_file(path).losses.tolist() == GOOD["losses"].tolist()


def test_positions_are_put_in_order(path):
    save(path, positions=np.array([105, 100, 101]))
    found = read_loss_file(path)
    assert found.positions.tolist() == [100, 101, 105]
    assert found.losses.tolist() == [[1, 2, 0], [4, 5, 3]]


BAD = {
    "an eval file": ({"losses": np.ones(3), "contexts": None}, ["`eval` file"]),
    "no contexts": ({"contexts": None}, ["no 'contexts'", "losses, positions found"]),
    "no losses": ({"losses": None, "weights": np.ones(3)}, ["no 'losses'", "weights"]),
    "three dimensions": ({"losses": np.ones((1, 2, 3))}, ["losses: shape [1, 2, 3]"]),
    "whole losses": ({"losses": np.ones((2, 3), dtype=int)}, ["losses", "int64"]),
    "float contexts": ({"contexts": np.array([16.0, 32.0])}, ["contexts", "float64"]),
    "transposed": ({"losses": np.ones((3, 2))}, ["losses [3, 2] of 2 contexts and 3 positions"]),
    "no tokens": (
        {"losses": np.ones((2, 0)), "positions": np.array([], dtype=int)}, ["0 positions"],
    ),
    "descending contexts": ({"contexts": np.array([32, 16])}, ["contexts [32, 16]", "sort"]),
    "a context twice": ({"contexts": np.array([16, 16])}, ["contexts [16, 16]"]),
    "negative context": ({"contexts": np.array([-1, 16])}, ["contexts [-1, 16]"]),
    "a position twice": ({"positions": np.array([5, 9, 5])}, ["position 5 found twice"]),
    "negative position": ({"positions": np.array([-5, 9, 5])}, ["position -5"]),
    "NaN": (
        {"losses": np.array([[0, 1, 2], [3, np.nan, 5]])},
        ["NaN loss at context 32, position 101", "1 of 6"],
    ),
    "infinity": ({"losses": np.array([[0, 1, 2], [3, 4, np.inf]])}, ["infinite", "position 105"]),
    "overflow": (
        {"losses": np.array([[0, 1, 2], [3, -1e37, 5]])},
        ["losses: -1e+37 nats at context 32, position 101", "1 of 6 losses are beyond 1,000,000"],
    ),
    "no predecessors": (
        {"positions": np.array([40, 31, 50])}, ["positions: 31 has no 32 predecessors"],
    ),
    "objects": ({"losses": np.array([[1, 2, None]] * 2)}, ["Object arrays cannot be loaded"]),
    "an object as name": ({"name": np.array({"a": 1})}, ["Object arrays cannot be loaded"]),
    "two names": ({"name": np.array(["a", "b"])}, ["name: shape [2]"]),
    "a number as split": ({"split": np.array(3)}, ["split", "int64"]),
    "endless name": ({"name": np.array("x" * 300_000)}, ["name", "<U300000"]),
    "settings that are no JSON": ({"settings": np.array("{")}, ["settings: '{'"]),
    "settings that are a list": ({"settings": np.array("[1]")}, ["settings: '[1]'"]),
    "longest 0": ({"longest": np.array(0)}, ["longest 0"]),
    "longest of no kind": ({"longest": np.array("x")}, ["longest", "<U1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_loss_file_is_refused_saying_why(path, name):
    changes, parts = BAD[name]
    save(path, **changes)
    line = complaint(path)
    assert all(part in line for part in parts), line


def test_nan_is_refused_by_the_name_of_its_model(path):
    save(path, losses=np.full((2, 3), np.nan), name=np.array("Transformer"))
    assert "Transformer" in complaint(path)


def test_nan_is_refused_before_it_is_written(path):
    with pytest.raises(UserError, match="a: NaN"):
        write_loss_file(path, LossFile(**{**GOOD, "losses": GOOD["losses"] * np.nan}, name="a"))
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"\x93NUMPY" + bytes(100)])
def test_other_files_are_refused(path, content):
    path.write_bytes(content)
    assert "not a whole .npz file" in complaint(path)


def test_missing_files_and_folders_are_refused(path):
    assert "no such file" in complaint(path)
    path.mkdir()
    assert "directory" in complaint(path)


def test_a_zip_of_something_else_is_refused(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("losses.npy", b"no array")
        archive.writestr("contexts.npy", b"no array")
        archive.writestr("positions.npy", b"no array")
    assert "'losses' is no array" in complaint(path)


def test_every_cut_and_every_flipped_byte_is_refused_or_read(path):
    """Damage never shows as anything but one line."""
    save(path, name=np.array("a"))
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        assert complaint(path)
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            read_loss_file(path)
        except UserError as error:
            assert str(path) in str(error)  # noqa: PT017


@pytest.mark.parametrize("tokens", [1 << 38, 1 << 28, 4])
def test_an_array_that_says_more_than_it_holds_takes_no_memory(path, tokens):
    """A terabyte, some gigabytes, or a little too much, in a file of a few bytes."""
    header = io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": (2, tokens)}
    np.lib.format.write_array_header_2_0(header, described)
    save(path, losses=None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("losses.npy", header.getvalue() + bytes(24))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "not a whole .npz file" in complaint(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_a_member_that_says_it_unpacks_to_more_than_it_can_is_refused(path):
    """Before anything is unpacked, so that nothing fills the memory."""
    save(path, losses=None)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("losses.npy", bytes(1000))
        archive.infolist()[-1].file_size = 1 << 40
    assert "losses.npy says 1,099,511,627,776 bytes" in complaint(path)


def test_some_contexts_and_tokens_of_a_file(path):
    save(path)
    file = read_loss_file(path)
    assert file.at([32]).losses.tolist() == [[3, 4, 5]]
    assert file.spread(2).losses.tolist() == [[0, 2], [3, 5]]
    assert file.spread(2).positions.tolist() == file.positions[[0, 2]].tolist()
    assert file.spread(3).losses.tolist() == file.losses.tolist()
    with pytest.raises(UserError, match="no losses at contexts 64, 128; choose among 16, 32"):
        file.at([32, 64, 128])
    with pytest.raises(UserError, match="3 tokens, but 4 were asked for"):
        file.spread(4)


def test_a_part_of_a_file_is_taken_from_all_over_it():
    """--tokens had taken the first, where models are scored all over the split."""
    many = LossFile(np.ones((2, 9000)), np.array([16, 32]), 100 + np.arange(9000))
    positions = many.spread(2000).positions
    assert (positions[0], positions[-1]) == (100, 9099)
    assert np.count_nonzero(np.diff(positions) > 1) == 19
    assert np.count_nonzero(positions < 4600) == 1000


def test_a_ten_line_program_can_write_one(path):
    losses = np.random.default_rng(0).gamma(1, 3, (2, 50))
    np.savez(
        path,
        losses=losses.astype(np.float32),
        contexts=[16, 32],
        positions=range(32, 82),
        name="mine",
        settings=json.dumps({"unit": "bpc"}),
        longest=128,
    )
    found = read_loss_file(path)
    assert (found.name, found.longest, found.settings) == ("mine", 128, {"unit": "bpc"})


ONE = LossFile(
    np.zeros((2, 4), dtype=np.float32),
    np.array([16, 32]),
    np.arange(4),
    name="one",
    corpus="aa",
    split="test",
    vocabulary="vv",
)
OTHER = replace(ONE, name="other")


def test_equal_files_agree():
    check_agreement([ONE, OTHER, ONE])
    check_agreement([ONE])


@pytest.mark.parametrize("field", ["corpus", "split", "vocabulary"])
def test_what_is_not_given_is_not_compared(field):
    check_agreement([ONE, replace(OTHER, **{field: None}), ONE])


@pytest.mark.parametrize("field", ["corpus", "split", "vocabulary"])
def test_what_two_files_say_must_be_equal_though_the_first_says_nothing(field):
    unsaid = replace(ONE, **{field: None})
    third = replace(ONE, name="third", **{field: "zz"})
    with pytest.raises(UserError, match=f"third: {field} 'zz', but '.*' in other"):
        check_agreement([unsaid, OTHER, third])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"contexts": np.array([16, 48])}, "other: contexts 16, 48, but 16, 32 in one"),
        ({"positions": np.arange(3)}, "other: 3 positions, but 4 in one"),
        (
            {"positions": np.array([0, 1, 7, 9])},
            "other: 2 of 4 positions differ, the first is 7, but 2 in one",
        ),
    ],
)
def test_arrays_that_differ(changes, words):
    with pytest.raises(UserError) as caught:
        check_agreement([ONE, replace(OTHER, **changes)])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_groups_need_the_same_contexts_only():
    check_contexts([ONE, replace(OTHER, positions=np.arange(9), corpus="zz")])
    with pytest.raises(UserError, match="other: contexts 8, 16, but 16, 32 in one, of another gro"):
        check_contexts([ONE, replace(OTHER, contexts=np.array([8, 16]))])


def test_many_numbers_are_named_briefly():
    assert brief(np.array([1, 2])) == "1, 2"
    assert brief(np.arange(0, 100)) == "0 to 99 (100 of them)"


TEXT = {
    "ids": np.arange(106) % 3,
    "pieces": np.array(["a", "b", "c"]),
    "counts": np.array([7, 0, 2]),
}


def test_a_file_may_hold_its_text(path):
    save(path, **TEXT)
    found = read_loss_file(path)
    assert {name: array.tolist() for name, array in found.text.items()} == {
        name: array.tolist() for name, array in TEXT.items()
    }
    write_loss_file(path, found.at((32,)))
    assert read_loss_file(path).text["pieces"].tolist() == ["a", "b", "c"]


def test_what_steers_a_terminal_is_not_read(path):
    pieces = np.array(["a\x1b[31m", "\u202eb\x00c", "\n"])
    strings = {"name": "x\x1b[2J\x9b\n\u2066y", "split": "te\x07st"}
    settings = '{"unit": "a\\u001b", "list": ["\\u202e"], "of": {"\\u0000": 1}}'
    save(path, **{**TEXT, "pieces": pieces}, **strings, settings=np.array(settings))
    found = read_loss_file(path)
    assert (found.name, found.split) == ("x\ufffd[2J\ufffd \ufffdy", "te\ufffdst")
    assert found.text["pieces"].tolist() == ["a\ufffd[31m", "\ufffdb\ufffdc", "\n"]
    assert found.settings == {"unit": "a\ufffd", "list": ["\ufffd"], "of": {"\ufffd": 1}}


def test_a_name_that_nobody_reads_is_shortened(path):
    save(path, name="x" * 5000)
    assert read_loss_file(path).name == "x" * 199 + "…"
    save(path, name="x" * 5000, losses=np.full((2, 3), np.nan))
    assert len(complaint(path)) < 500


def test_pieces_without_ids_say_nothing(path):
    save(path, pieces=TEXT["pieces"])
    assert read_loss_file(path).text == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"ids": np.arange(105) % 3},
        {"ids": np.arange(106) % 3 - 1},
        {"ids": np.zeros((2, 60), dtype=int)},
        {"ids": np.zeros(106)},
        {"pieces": np.array(["a", "b"])},
        {"pieces": np.arange(3)},
        {"counts": np.array([1])},
        {"counts": np.array(["a", "b", "c"])},
        {"counts": np.array([3, -1, 2])},
        {"counts": np.array([0, 0, 0])},
        {"ids": np.zeros(0, dtype=int)},
    ],
)
def test_a_text_that_does_not_fit_is_refused(path, changes):
    save(path, **{**TEXT, **changes})
    with pytest.raises(UserError, match=rf"a.npz: {next(iter(changes))}: ") as caught:
        read_loss_file(path)
    assert "\n" not in str(caught.value)
