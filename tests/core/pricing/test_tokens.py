"""Counts against tiktoken itself, the bound that money is reserved by, and a closed network."""

import hashlib
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter.pricing import tokens
from wiserouter.pricing.tokens import ESTIMATE, PIECE_CHARS, TokenCount, count_tokens

BLOBS = "https://openaipublic.blob.core.windows.net/encodings/"
ENCODINGS = ["o200k_base", "cl100k_base"]


def file_name(encoding):
    return hashlib.sha1(f"{BLOBS}{encoding}.tiktoken".encode()).hexdigest()


@pytest.fixture(scope="module")
def files():
    """A folder with the encodings, as LiteLLM's wheel ships them; found without importing LiteLLM."""
    found = find_spec("litellm")
    origin = found.origin if found else None  # without LiteLLM, the folder of its tests is found, which has none
    folder = Path(origin).parent / "litellm_core_utils" / "tokenizers" if origin else Path("absent")
    if not all((folder / file_name(name)).exists() for name in ENCODINGS):
        pytest.skip("no tiktoken files: the installed litellm ships none")
    return folder


@pytest.fixture
def cached(files, monkeypatch):
    """Both encodings are cached."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(files))
    return files


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """Nothing is cached."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def no_socket(monkeypatch):
    """Any attempt to open a socket, even to this machine, is recorded."""
    opened = []

    def refuse(*args, **kwargs):
        opened.append(args)
        raise OSError("closed by the test")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return opened


def oracle(name, text):
    return len(tiktoken.get_encoding(name).encode(text, disallowed_special=()))


@pytest.mark.parametrize("name", ENCODINGS)
def test_pattern_is_tiktokens_own(name, cached):
    assert tokens._PATTERN[name] == tiktoken.get_encoding(name)._pat_str


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "o200k_base"),
        ("openai/gpt-4o-mini", "o200k_base"),
        ("gpt-4.1", "o200k_base"),
        ("gpt-5-mini", "o200k_base"),
        ("o3", "o200k_base"),
        ("gpt-oss-120b", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-3.5-turbo-1106", "cl100k_base"),
    ],
)
def test_a_known_model_is_counted_exactly(model, name, cached):
    text = "The naïve café: 3.14159, 東京 <|endoftext|> 😀\n\n"
    n = oracle(name, text)
    assert count_tokens(text, model) == TokenCount(tokens=n, at_most=n, encoding=name)


@pytest.mark.parametrize("model", [None, "", "claude-sonnet-4", "text-davinci-003", "gpt2"])
def test_another_model_is_counted_by_o200k_and_bounded_by_bytes(model, cached):
    assert count_tokens("hello world", model) == TokenCount(tokens=2, at_most=11, encoding="o200k_base")


def test_without_o200k_an_unknown_model_falls_back_to_cl100k(files, empty):
    shutil.copy(files / file_name("cl100k_base"), empty)
    assert count_tokens("hello world") == TokenCount(2, 11, "cl100k_base")
    assert count_tokens("hello world", "gpt-4o") == TokenCount(2, 11, "cl100k_base")
    assert count_tokens("hello world", "gpt-4") == TokenCount(2, 2, "cl100k_base")


@pytest.mark.parametrize(
    ("text", "n", "n_bytes"), [("", 0, 0), ("a", 1, 1), ("abcd", 1, 4), ("naïve", 2, 6), ("東京", 2, 6)]
)
def test_without_a_file_it_is_a_quarter_of_the_bytes(text, n, n_bytes, empty):
    assert count_tokens(text, "gpt-4o") == TokenCount(n, n_bytes, ESTIMATE)


def test_without_a_file_no_socket_is_opened(empty, no_socket):
    for model in (None, "gpt-4o", "gpt-4", "text-davinci-003", "gpt2", "other"):
        assert count_tokens("hello world", model).encoding == ESTIMATE
    assert no_socket == []
    assert list(empty.iterdir()) == []


def test_a_damaged_file_is_neither_used_nor_touched(empty, no_socket):
    file = empty / file_name("o200k_base")
    file.write_bytes(b"YQ== 0\n")
    assert count_tokens("hello", "gpt-4o").encoding == ESTIMATE
    assert file.read_bytes() == b"YQ== 0\n"
    assert no_socket == []


def test_a_file_that_cannot_be_read_counts_as_absent(empty):
    (empty / file_name("o200k_base")).mkdir()
    assert count_tokens("hello", "gpt-4o").encoding == ESTIMATE


def test_a_mended_file_is_used(files, empty):
    file = empty / file_name("o200k_base")
    file.write_bytes(b"half a file")
    assert count_tokens("hello").encoding == ESTIMATE
    shutil.copy(files / file.name, file)
    assert count_tokens("hello").encoding == "o200k_base"


def test_the_cache_directory_is_found_as_tiktoken_finds_it(files, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)
    (tmp_path / "data-gym-cache").mkdir()
    shutil.copy(files / file_name("cl100k_base"), tmp_path / "data-gym-cache")
    assert count_tokens("hello").encoding == "cl100k_base"
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(files))
    assert count_tokens("hello").encoding == "o200k_base"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # tiktoken: caching is off
    assert count_tokens("hello").encoding == ESTIMATE


@settings(max_examples=200)
@given(text=st.text(st.characters(exclude_categories=())), name=st.sampled_from(ENCODINGS))
def test_any_text_counts_as_tiktoken_does_and_keeps_the_bound(text, name, files):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(files))
        own = count_tokens(text, {"o200k_base": "gpt-4o", "cl100k_base": "gpt-4"}[name])
        other = count_tokens(text, "some-open-model")
        assert own.tokens == own.at_most == oracle(name, text)
    assert own.tokens <= other.at_most
    assert other.tokens <= other.at_most == len(text.encode("utf-8", "surrogatepass"))


def test_a_million_blanks_do_not_overflow(cached):
    count = count_tokens(" " * 1_000_001, "gpt-4o")
    assert count.at_most == 1_000_001
    assert 0 < count.tokens < count.at_most


def test_a_long_text_is_counted_in_pieces(cached):
    text = "hello world " * (PIECE_CHARS // 10)
    count = count_tokens(text, "gpt-4o")
    assert count.tokens == pytest.approx(oracle("o200k_base", text), abs=5)
    assert count.at_most == len(text)


def test_a_file_is_read_once_by_many_threads(cached):
    tokens._read.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        counts = set(pool.map(lambda _: count_tokens("hello world", "gpt-4o"), range(32)))
    assert counts == {TokenCount(2, 2, "o200k_base")}
    assert tokens._read.cache_info().misses == 1


def test_importing_the_module_does_not_load_tiktoken():
    code = "import sys, wiserouter.pricing.tokens; sys.exit('tiktoken' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_asyncio_that_another_thread_is_importing_runs_no_event_loop(monkeypatch):
    monkeypatch.setitem(sys.modules, "asyncio", ModuleType("asyncio"))  # as at the start of its import
    count_tokens("twice", model="gpt-4o")
    assert count_tokens("twice", model="gpt-4o").at_most >= 1
