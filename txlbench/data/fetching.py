"""Fetching published files: several addresses in turn, whole and verified or not at all.

Files lie in `downloads` under the data directory. A file is written beside its place and moved
there once it is complete and its checksum is right, so what lies there can be trusted.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from txlbench.data.progress_line import ProgressLine
from txlbench.data.storage import data_root
from txlbench.errors import UserError

CHUNK = 1 << 20
"""Bytes received at once."""

AGENT = {"User-Agent": "txlbench"}
"""Some servers refuse the name that the HTTP library has of its own."""


@dataclass(frozen=True)
class PublishedFile:
    """A file that lies at one or more addresses.

    Attributes:
        name: its own name, also in `downloads`.
        addresses: where it lies, tried in order.
        sha256: its published checksum, None where none is known for certain.
    """

    name: str
    addresses: tuple[str, ...]
    sha256: str | None


def downloaded(file: PublishedFile) -> Path:
    """Where `file` lies once it is fetched."""
    return data_root() / "downloads" / file.name


def fetch(file: PublishedFile, instead: str) -> Path:
    """The path of `file`, fetched unless it is there already.

    Args:
        instead: how the user can give what cannot be fetched, for the message.

    Raises:
        UserError: if no address has the file, with the reason of each.
    """
    from pooch import HTTPDownloader, get_logger, retrieve

    get_logger().setLevel(logging.WARNING)
    place = downloaded(file)
    known = file.sha256 and f"sha256:{file.sha256}"
    reasons = []
    for address in file.addresses:
        progress = ProgressLine(f"fetching {address}")
        downloader = HTTPDownloader(progressbar=progress, chunk_size=CHUNK, headers=AGENT)
        try:
            retrieve(address, known, place.name, place.parent, downloader=downloader)
            return place
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {_reason(error)}")
        finally:
            progress.close()
    checksum = f"SHA-256 {file.sha256}" if file.sha256 else "no SHA-256 known"
    raise UserError(f"cannot fetch {file.name} ({checksum}): {', '.join(reasons)}", instead)


def _reason(error: OSError | ValueError) -> str:
    """Why an address failed, in a few words; what is wrong with our own disk is raised again."""
    from requests import exceptions

    match error:
        case exceptions.HTTPError(response=response) if response is not None:
            return f"{response.status_code} {response.reason}"
        case exceptions.TooManyRedirects():
            return "redirected without end"
        case exceptions.Timeout():
            return "no answer in time"
        case exceptions.ChunkedEncodingError():
            return "cut off"
        case exceptions.ConnectionError():
            return "no connection"
        case exceptions.RequestException():
            return type(error).__name__
        case OSError():
            raise error
    return "another file (wrong checksum)"
