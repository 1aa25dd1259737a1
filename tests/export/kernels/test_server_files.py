"""vLLM's files for its kernels of Mamba states and LoRA, out of kernels of specs, byte for byte and by its look-up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from samples import ROOT
from vllm_kernels_stand_in import EXPAND, SHRINK, SSU, written

from gemm_tuner.cli.main import main
from gemm_tuner.core.choice import Choice
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Verified
from gemm_tuner.hosts import host_spec_file
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.store import results, run_record
from gemm_tuner.store.results import Header
from gemm_tuner.store.run_record import RunRecord, SizeRecord

EXAMPLES = ROOT / "examples" / "kernels"
GOLDEN = ROOT / "tests" / "golden" / "export_kernels"
HEADER = Header(
    "1", "2026-01-31T12:00:00Z", "NVIDIA H100 80GB HBM3", "sm_90", 132, "", "3.6.0", "2.11", "3.12", "nsys", "1",
    "randn", 0, "flushed", "measured", "",
)  # fmt: skip
CONFIG = {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 16, "num_warps": 4, "num_stages": 2}
OF_SHRINK = {**CONFIG, "SPLIT_K": 8, "GROUP_SIZE_M": 1}
KERNELS = {
    "vllm_ssu": (SSU, "vllm_ssu.py:run"),
    "vllm_lora_shrink": (SHRINK, "vllm_lora.py:shrink"),
    "vllm_lora_expand": (EXPAND, "vllm_lora.py:expand"),
}
MAMBA = {"nheads": 128, "headdim": 64, "dstate": 128, "ngroups": 8, "dtype": "bfloat16", "cache_dtype": "float16"}
LORA = {"hidden_size": 4096, "rank": 16, "max_loras": 5, "dtype": "bfloat16"}
Rows = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]


def tuned(
    folder: Path, name: str, rows: Rows, how: Verified = Verified.TRUE, source: str = "measured", **keys: Any
) -> Path:
    """A results file and its run, as one on a GPU would have left them. rows: (case, configuration)."""
    (file, kernel), host = KERNELS[name]
    folder.mkdir(parents=True)
    body = {
        **yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text()),
        "cases": [dict(case) for case, _ in rows],
        **keys,
    }
    body["reference"] = f"{EXAMPLES}/{body['reference']}"
    (folder / "spec.yaml").write_text(yaml.safe_dump(body))
    target = f"{written(folder) / file}:{kernel}"
    spec, cases = host_spec_file.read(target, f"{EXAMPLES / host}", folder / "spec.yaml")
    made, sizes = [], []
    for case, (_, config) in zip(cases, rows, strict=True):
        problem, chosen = HostProblem.of(spec, case), PlainConfig(spec.name, tuple(config.items()))
        times = 1.0, 2.0, 10, None, 0.0, 0.1, "", None, False, 0.0
        made.append(results.choice_row(Choice(problem, chosen, source, how, 10.0, *times)))
        sizes.append(SizeRecord(problem, 1, (), {"ok": 1}, 0.0, chosen=chosen.name))
    header = {**vars(HEADER), "run": str(folder)}
    run_record.write(folder, RunRecord((), 1.0, header, {}, {}, {}, tuple(sizes), "tuned.yaml"))
    results.write_rows(folder / "tuned.yaml", header, made, [])
    return folder / "tuned.yaml"


def export(path: Path, to: str, out: Path, *more: str) -> int:
    return main(["export", str(path), "--to", to, "-o", str(out), *more])


def files(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def mamba(*batches: int, **changes: Any) -> Rows:
    return [({"batch": one, **MAMBA, **changes}, {"BLOCK_SIZE_M": 4 * one, "num_warps": 2}) for one in batches]


def test_files_are_the_golden_ones(tmp_path: Path, update_golden: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """After a wanted change: run this file with ``--update-golden``, and read the diff."""
    out = tmp_path / "out"
    assert export(tuned(tmp_path / "ssu", "vllm_ssu", mamba(8, 1)), "vllm-ssu", out) == 0
    layers: Rows = [({"m": m, "num_slices": n, **LORA}, OF_SHRINK) for m, n in ((64, 1), (8, 1), (8, 2), (8, 3))]
    assert export(tuned(tmp_path / "shrink", "vllm_lora_shrink", layers), "vllm-lora", out) == 0
    adding: Rows = [({**case, "add_inputs": True}, CONFIG) for case, _ in layers]
    assert export(tuned(tmp_path / "expand", "vllm_lora_expand", adding), "vllm-lora", out) == 0
    if update_golden:
        for name, text in files(out).items():
            (GOLDEN / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / name).write_text(text)
    assert files(out) == files(GOLDEN) != {}
    assert "stops" not in capsys.readouterr().err


def nearest(body: Mapping[str, Any], number: int) -> Any:
    """vLLM's rule at a level of a LoRA file."""
    return body.get(str(number)) or body[min(body, key=lambda key: abs(int(key) - number))]


def test_a_lora_layer_finds_its_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows: Rows = [
        ({"m": 16, "num_slices": 1, **LORA}, OF_SHRINK),
        ({"m": 512, "num_slices": 1, **LORA, "hidden_size": 8192}, {**OF_SHRINK, "BLOCK_K": 256}),
    ]
    assert export(tuned(tmp_path / "run", "vllm_lora_shrink", rows), "vllm-lora", tmp_path) == 0
    assert "num_slices 2 or 3" in capsys.readouterr().err
    body = json.loads((tmp_path / "NVIDIA_H100_80GB_HBM3_SHRINK.json").read_text())
    for m, hidden_size, block_k in ((1, 4096, 16), (4096, 8000, 256)):
        found = nearest(nearest(nearest(nearest(body, 4)["1"], m), hidden_size), 32)
        assert (found["block_k"], found["split_k"], found["num_ctas"]) == (block_k, 8, 1)


def test_files_are_merged_and_serve_check_looks_as_vllm_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert export(tuned(tmp_path / "one", "vllm_ssu", mamba(1, 8)), "vllm-ssu", out) == 0
    assert export(tuned(tmp_path / "two", "vllm_ssu", mamba(16, cache_dtype="bfloat16")), "vllm-ssu", out) == 0
    (path,) = out.rglob("*.json")
    body = json.loads(path.read_text())
    assert list(body) == ["triton_version", "128", "1024", "2048"]  # one file for both types of 16 bits
    assert export(tmp_path / "two" / "tuned.yaml", "vllm-ssu", out, "--dry_run") == 0
    capsys.readouterr()
    path.write_text(json.dumps({**body, "a remark": {}}))  # which vLLM passes over
    assert main(["serve-check", str(out), "--as", "vllm-ssu", "--m", "1,1500,1537,99999", "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert [one["key"] for one in file["servings"]] == ["128", "1024", "2048", "2048"]
    path.write_text(json.dumps({"128": {"BLOCK_SIZE_M": 4}}))
    assert main(["serve-check", str(out), "--as", "vllm-ssu"]) == 1
    assert "num_warps" in capsys.readouterr().out


def test_what_is_predicted_replaces_no_entry_unless_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert export(tuned(tmp_path / "one", "vllm_ssu", mamba(8)), "vllm-ssu", out) == 0
    measured = files(out)
    rows: Rows = [(case, {"BLOCK_SIZE_M": 64, "num_warps": 8}) for case, _ in mamba(8, 16)]
    guessed = tuned(tmp_path / "two", "vllm_ssu", rows, source="predicted")
    assert export(guessed, "vllm-ssu", out, "--predicted") == 1
    assert "another entry for 1024, which a prediction does not replace" in capsys.readouterr().err
    ((before, after),) = [(json.loads(measured[name]), json.loads(text)) for name, text in files(out).items()]
    assert {key: row for key, row in after.items() if key in before} == before and "2048" in after
    assert export(guessed, "vllm-ssu", out, "--predicted", "--overwrite") == 0
    assert len({str(row) for row in json.loads(next(iter(files(out).values()))).values()}) == 2  # and the version


def test_two_cases_at_one_key_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*mamba(2), *mamba(1, nheads=256)]
    assert export(tuned(tmp_path / "run", "vllm_ssu", rows), "vllm-ssu", tmp_path) == 1
    assert "one entry for 256" in capsys.readouterr().err


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ssu = tuned(tmp_path / "ssu", "vllm_ssu", mamba(1))
    odd = tuned(tmp_path / "odd", "vllm_ssu", mamba(1, cache_dtype="float64"))
    narrow = tuned(
        tmp_path / "narrow", "vllm_ssu", [(mamba(1)[0][0], {"BLOCK_SIZE_M": 4})], params={"BLOCK_SIZE_M": [4]}
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "NVIDIA_H100_80GB_HBM3_EXPAND_TRUE.json").write_text('{"5": {"1": 3}}')
    layer: Rows = [({"m": 8, "num_slices": 1, "add_inputs": True, **LORA}, CONFIG)]
    other = tuned(tmp_path / "expand", "vllm_lora_expand", layer)
    gemms = ROOT / "tests" / "golden" / "export" / "h20.yaml"
    for path, to, told in (
        (ssu, "vllm-lora", "max_loras"),
        (odd, "vllm-ssu", "float64"),
        (narrow, "vllm-ssu", "num_warps"),
        (other, "vllm-lora", "another format"),
        (gemms, "vllm-ssu", "kernels of specs"),
        (ssu, "vllm-moe", "takes GEMMs"),
    ):
        assert export(path, to, tmp_path / "out") == 2
        text = capsys.readouterr().err.strip()
        assert told in text and len(text.splitlines()) == 1


def test_what_no_gpu_checked_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tuned(tmp_path / "run", "vllm_ssu", mamba(1), Verified.FALSE)
    assert export(path, "vllm-ssu", tmp_path / "out") == 1
    assert files(tmp_path / "out") == {}
    assert export(path, "vllm-ssu", tmp_path / "out", "--unverified", "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out.splitlines()[-1])["entries"]
    assert (entry["key"], entry["verified"]) == ("128", "false")


def test_a_results_file_without_its_run_is_exported_by_a_spec_that_names_kernel_and_host(tmp_path: Path) -> None:
    path, out = tuned(tmp_path / "ssu", "vllm_ssu", mamba(8, 1)), tmp_path / "out"
    assert export(path, "vllm-ssu", out) == 0
    (tmp_path / "ssu" / "run.json").unlink()
    spec = tmp_path / "ssu" / "spec.yaml"
    assert export(path, "vllm-ssu", tmp_path / "no", "--spec", str(spec)) == 2
    (file, kernel), host = KERNELS["vllm_ssu"]
    named = {"kernel": f"{written(tmp_path / 'ssu') / file}:{kernel}", "host": f"{EXAMPLES / host}"}
    spec.write_text(yaml.safe_dump({**yaml.safe_load(spec.read_text()), **named}))
    assert export(path, "vllm-ssu", tmp_path / "again", "--spec", str(spec)) == 0
    assert files(tmp_path / "again") == files(out)
