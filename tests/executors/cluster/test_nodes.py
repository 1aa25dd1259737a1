"""Which machines of a cluster are given work."""

from __future__ import annotations

from dataclasses import replace

from gemm_tuner.executors.cluster.nodes import Node, faults, gpu_files, here_for, lacks, look_here
from gemm_tuner.pipeline.cluster_check import MachineFound, lines

HERE = look_here()
NODE = Node("id", "10.0.0.2", cpus=8, gpus=0, versions=HERE)


def test_a_machine_like_this_one_works() -> None:
    assert faults(NODE, HERE, times=True) == []
    assert HERE.triton and HERE.tuner and "(" in HERE.tuner


def test_other_code_or_another_compiler_is_refused() -> None:
    for name in ("tuner", "python", "triton"):
        (text,) = faults(replace(NODE, versions=replace(HERE, **{name: "0.0"})), HERE, times=False)
        assert text.startswith(f"{name} is 0.0, here ")


def test_compiling_needs_no_torch_and_timing_does() -> None:
    bare = replace(NODE, versions=replace(HERE, torch=""))
    assert faults(bare, HERE, times=False) == []
    (text,) = faults(bare, HERE, times=True)
    assert "torch is not installed" in text


def test_a_machine_without_the_tuner_says_why() -> None:
    assert faults(replace(NODE, versions=None, why_not="no module"), HERE, times=False) == ["no module"]


def test_each_gpu_model_has_a_file_name_of_its_own() -> None:
    words = gpu_files(["NVIDIA H200", "AMD Instinct MI300X", "NVIDIA-H200"])
    assert words["AMD Instinct MI300X"] == "amd_instinct_mi300x"
    assert len(set(words.values())) == 3 and all(word.replace("_", "").isalnum() for word in words.values())


def test_the_list_names_what_is_wrong() -> None:
    found = [
        MachineFound(NODE, (), True, False, ()),
        MachineFound(replace(NODE, gpus=1), ("NVIDIA H200, sm_90",), True, True, ("torch is 1, here 2",)),
    ]
    text = "\n".join(lines(found))
    assert "wrong: torch is 1, here 2" in text and "GPU: NVIDIA H200, sm_90" in text
    assert "compile: 2 of 2; GPUs that time: 1" in text
    (head, *_) = lines([MachineFound(replace(NODE, cpus=0), (), False, False, ())])
    assert "0 cores, 0 GPUs; is given no work" in head and "Ray has none of its cores" in head


def test_a_machine_without_the_extra_compiles_other_languages_and_times_nothing() -> None:
    here = replace(HERE, cute="nvidia-cutlass-dsl 4.8.1")
    bare, full = replace(NODE, versions=replace(HERE, cute="")), replace(NODE, versions=here)
    text = "cute is not installed, here nvidia-cutlass-dsl 4.8.1"
    assert (faults(bare, here, times=False), faults(bare, here, times=True)) == ([], [text])
    assert (lacks(bare, here), lacks(full, here)) == ({"cute": text}, {})
    assert faults(full, replace(HERE, cute=""), times=True) == []


def test_an_extra_that_no_family_of_the_run_needs_does_not_matter() -> None:
    assert here_for(["triton", "cute"]) == HERE
    assert here_for(["triton"]) == replace(HERE, cute="")
