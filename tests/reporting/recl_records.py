"""Records as `recl` writes them, of models whose truth is known."""

from pathlib import Path

from tests.commands.loss_files import save
from txlbench.commands.recl import read_groups, recl_record
from txlbench.commands.recl_request import ReclRequest
from txlbench.files import write_json

COMMAND = "txlbench recl --models XL.npz"


def write_record(folder, groups=(("XL", "LSTM"),), paper=None, **changes):
    """Writes recl.json; XL gains up to 300, LSTM up to 200, Vanilla up to its longest of 128."""
    save(folder / "XL.npz", seed=1, settings='{"unit": "bpc", "dtype": "fp32", "clamp_len": null}')
    save(folder / "LSTM.npz", seed=2, reach=200, settings='{"unit": "bpc", "dtype": "bf16"}')
    save(folder / "Vanilla.npz", seed=3, reach=128, noise=0.0, longest=128)
    names = tuple(tuple(str(folder / f"{name}.npz") for name in group) for group in groups)
    request = ReclRequest(names, command=COMMAND, **changes)
    record = recl_record(read_groups(request, lambda *_: None), request).content
    for (model, r), value in (paper or {}).items():
        for group in record["groups"]:
            for line in group["results"]:
                if (line["model"], line["r"]) == (model, r):
                    line["paper"] = value
    write_json(folder / "recl.json", record)
    return Path(folder)
