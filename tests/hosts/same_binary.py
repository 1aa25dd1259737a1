"""A process of its own: compiles what was captured without memory, then launches of real tensors. Prints, for each
architecture's kernels, whether Triton finds the second compiled. One architecture a process: Triton keeps kernels by
device."""

import json
import sys
from pathlib import Path

from gemm_tuner.hosts import host_spec_file
from gemm_tuner.hosts.captured import compiled_launches
from gemm_tuner.hosts.host_code import HostCode
from gemm_tuner.hosts.module_loader import UserModules
from gemm_tuner.hosts.redirection import CPU, META, redirected
from gemm_tuner.hosts.stand_in_device import described
from gemm_tuner.languages.triton.cached_compile import warm_up
from gemm_tuner.space import space

SAMPLE, arch = Path(__file__).with_name("host_sample.py"), sys.argv[1]
device = space.load(Path(__file__).parents[2] / "rules" / f"space_{arch}.yaml", arch).device
spec, _ = host_spec_file.read(f"{SAMPLE}:doubled", f"{SAMPLE}:three_launches", None)
found = []
for place in (META, CPU):
    with described(device), redirected(place):
        code = HostCode(spec, UserModules(dict(spec.host.modules)))
        recorder, _ = code.call((("n", 50),), {"BLOCK": 16, "num_warps": 1}, 0, runs=False)
        launches = recorder.launches if place == CPU else compiled_launches(recorder.launches, recorder.tuned_at)
        for launch in launches:
            kernel, was_there = warm_up(launch)
            found.append((place, kernel.metadata.name == launch[0], was_there))
print(json.dumps(found))
