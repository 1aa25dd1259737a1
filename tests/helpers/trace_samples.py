"""What the tests of the profilers' readers share: the samples, what is expected of each, and broken copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from gemm_tuner.core.errors import EXIT_ENVIRONMENT
from gemm_tuner.profilers import TraceError, ncu, nsys, proton, rocprof, rocprofv3

DATA = Path(__file__).resolve().parents[1] / "data" / "profilers"
Reader = Callable[[Path], pd.DataFrame]

ADD_CONST = "addConstDouble(int, double *, double, double *)"
ADDITION = "void addition_kernel<float>(float*, float const*, float const*, int, int)"
MATMUL_2022 = "matmul_kernel_BM128_BN128_BK32_GM4_SK1_nW4_nS2"
SAXPY = "vernier::bench::demo::<unnamed>::saxpyKernel(float, const float *, float *, unsigned long)"
DERIVED = "DERIVED_rocprofv3_kernel_trace_h4_from_json_gfx950_triton_attn.csv"
V1_LLAMA = "rocprofv1_stats_results_gfx1201_llamacpp.csv"
V1_MI250 = "rocprofv1_stats_results_mi250_finitediff.csv"
V2 = "rocprofv2_fileplugin2_omniperf_MI300X.csv"
V3 = "rocprofv3_kernel_trace_h4_docs_rocm7.0.csv"
NSYS = "nsys_2023.4.4_cuda_gpu_trace_h200_triton_matmul.csv"
NCU_DETAILS, NCU_RAW = "ncu_2025.3.1_metrics_h200_triton_matmul.csv", "ncu_2022.3_import_raw_units_base.csv"

# file: reader, rows, then one row: its index, kernel, start_ns, duration_ns
READ: dict[str, tuple[Reader, int, int, str, int, float]] = {
    V1_LLAMA: (rocprof.read_file, 39, 0, "__amd_rocclr_fillBufferAligned", 769537350099688, 7600),
    V1_MI250: (
        rocprof.read_file,
        19,
        0,
        "void test_function_kernel<double>(double*, int, int, int, double, double, double)",
        1915914098849134,
        1130883,
    ),
    V2: (rocprof.read_file, 3, 1, "vecCopy(double*, double*, double*, int, int)", 716380685184013, 13560),
    "rocprofv3_kernel_trace_h1_docs_2024-07.csv": (
        rocprofv3.read_file,
        1,
        0,
        "matrixTranspose(float*, float*, int)",
        671599758568,
        66760,
    ),
    "rocprofv3_kernel_trace_h3_docs_2025-04_streamid.csv": (
        rocprofv3.read_file,
        9,
        0,
        ADDITION,
        1057678125279112,
        9800,
    ),
    V3: (rocprofv3.read_file, 9, 0, ADDITION, 1550151853029637, 12800),
    "rocprofv3_kernel_trace_h4_truncate_docs_rocm7.0.csv": (
        rocprofv3.read_file,
        4,
        3,
        "divide_kernel",
        1552082594696598,
        13080,
    ),
    DERIVED: (rocprofv3.read_file, 36, 0, "__amd_rocclr_copyBuffer", 63857982592000, 2840),
    NSYS: (nsys.read_file, 12, 2, "matmul_kernel", 3742175639, 29152),
    "nsys_2026.3.1_cuda_gpu_trace.csv": (nsys.read_file, 4, 3, SAXPY, 1502812848, 6592),
    "SYNTHDB_nsys_2022.4.2_gputrace.csv": (nsys.read_file, 12, 0, MATMUL_2022, 1000000000, 91694),
    NCU_DETAILS: (ncu.read_file, 10, 9, "matmul_kernel", 9, 30688),
    "ncu_2022.3_import_details_default.csv": (ncu.read_file, 1, 0, ADD_CONST, 0, 239010),
    "ncu_2022.3_import_details_metrics_base.csv": (ncu.read_file, 1, 0, ADD_CONST, 0, 239008),
    "ncu_2022.3_import_raw_units_auto.csv": (ncu.read_file, 1, 0, ADD_CONST, 0, 239008),
    NCU_RAW: (ncu.read_file, 1, 0, ADD_CONST, 0, 239008),
    "ncu_2022.3_import_raw_base_LOCALE_en_US.csv": (ncu.read_file, 1, 0, ADD_CONST, 0, 239008),
    "ncu_2022.3_import_details_base_LOCALE_en_US.csv": (ncu.read_file, 1, 0, ADD_CONST, 0, 239008),
    "ncu_csv_metrics_excerpt_sm121.txt": (ncu.read_file, 3, 2, "saxpy", 2, 1205000),
    "ncu_csv_metrics_kerneltime_col_2024.txt": (
        ncu.read_file,
        1,
        0,
        "ampere_h16816gemm_256x128_ldg8_stages_32x3_tn",
        0,
        152192,
    ),
    "proton_triton3.6_h200_triton_matmul.json": (proton.read_file, 17, 2, "matmul_kernel", 65247796, 4128),
}

# file: reader, line (None where the message names none), words of the message
REFUSED: dict[str, tuple[Reader, int | None, str]] = {
    "rocprofv1_stats_results.stats_gfx1201_llamacpp.csv": (
        rocprof.read_file,
        1,
        "use X.csv, not X.stats.csv",
    ),
    "rocprofv1_stats_results.stats_mi250_finitediff.csv": (
        rocprof.read_file,
        1,
        "use X.csv, not X.stats.csv",
    ),
    "rocprofv1_pmc_gfx950_aiter_nostats.csv": (rocprof.read_file, 1, "run rocprof with --stats"),
    "rocprofv1_timestamp_omniperf_renamed_MI200.csv": (rocprof.read_file, 1, "omniperf renames"),
    "rocprofv1_legacy_rocm4.3_fbar_NOHEADER.csv": (rocprof.read_file, 1, "the header line is missing"),
    "rocprofv3_counter_collection_docs_rocm7.0.csv": (rocprofv3.read_file, 1, "these are counters"),
    "rocprofv3_hip_api_stats_docs_rocm7.0.csv": (rocprofv3.read_file, 1, "use *_kernel_trace.csv"),
    "rocprofv3_kernel_stats_pytorch_mi.csv": (rocprofv3.read_file, 1, "use *_kernel_trace.csv"),
    "rocprofv3_results_json_trimmed_gfx950_triton_attn.json": (
        rocprofv3.read_file,
        1,
        "another tool wrote the file",
    ),
    "rocpd_db_extract_gfx1201_llamabench_rocm7.json": (rocprofv3.read_file, 1, "another tool wrote the file"),
    "nsys_2024.6.2_cuda_gpu_kern_sum.csv": (nsys.read_file, 1, "use the report cuda_gpu_trace"),
    "SYNTHDB_nsys_2022.4.2_gpukernsum.csv": (nsys.read_file, 1, "a sum over launches"),
    "SYNTHDB_nsys_2022.4.2_gpukernsum_base.csv": (nsys.read_file, 1, "a sum over launches"),
    "nsys_2026.3.1_nvtx_pushpop_trace.csv": (nsys.read_file, 1, "NVTX ranges"),
    "nsys_stats_stdout_preamble_cuda_gpu_trace.txt": (nsys.read_file, None, "no kernels recorded"),
    "ncu_2022.3_import_raw_base_LOCALE_de_DE.csv": (
        ncu.read_file,
        3,
        "'239.008' nsecond may have been written",
    ),
    "ncu_2022.3_import_details_base_LOCALE_de_DE.csv": (
        ncu.read_file,
        7,
        "'239.008' nsecond may have been written",
    ),
    "ncu_2022.3_import_raw_TEXT.txt": (ncu.read_file, 1, "no line of the file is a header"),
}

CSV_READ = {name: row for name, row in READ.items() if row[0] is not proton.read_file}


def lines_of(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="utf-8").splitlines()


def write(tmp_path: Path, lines: list[str], end: str = "\n") -> Path:
    path = tmp_path / "copy.csv"
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


def refusal(reader: Reader, path: Path, trouble: str = "unreadable") -> str:
    with pytest.raises(TraceError) as caught:
        reader(path)
    error = caught.value
    assert error.trouble == trouble
    assert error.exit_status == EXIT_ENVIRONMENT
    assert str(path) in error.where
    return error.one_line()


V3_AFTER = "0,0,8,0,16,64,1,1,1024,1024,1"


def v3_row(name: str, start_ns: int | str, end_ns: int | str) -> str:
    return f'"KERNEL_DISPATCH","Agent 4",1,1,834304,1,10,{name},1,{start_ns},{end_ns},{V3_AFTER}'
