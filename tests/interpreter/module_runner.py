"""Calls an exported module in Triton's interpreter. Every function here but ``interpret`` runs there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interpreter_child import interpreter

from gemm_tuner.gemm.problem import GemmProblem


def interpret(module: Path, function: Callable[..., Any], **given: Any) -> Any:
    """What a function here returns for a module, loaded anew. Raises AssertionError with its traceback."""
    return interpreter().ask(called, path=str(module), name=function.__name__, given=given)


def called(path: str, name: str, given: dict[str, Any]) -> Any:
    import torch

    torch._dynamo.reset()  # what it compiled is of an operator that is defined anew
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["exported"] = module
    spec.loader.exec_module(module)
    return globals()[name](module, **given)


def products(module: Any, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """For each problem its verdict's message, empty when right, and the configuration; what counters hold in the end.

    Each is computed twice, the second time by the plan that was kept.
    """
    import torch

    from gemm_tuner.export.gemm.module.rows import Tuned
    from gemm_tuner.gemm.compare import compare
    from gemm_tuner.gemm.operands import make_operands
    from gemm_tuner.gemm.reference import reference
    from gemm_tuner.languages.scratch import STAND_IN_SMS

    rows = []
    for problem in map(GemmProblem.from_dict, cases):
        operands = make_operands(problem, "randn", 1, "cpu")
        first, second = (module.matmul(*operands.logical(problem), **arguments(problem, operands)) for _ in range(2))
        verdict = compare(first.reshape(-1, problem.n), *reference(problem, operands), problem, "matmul")
        message = verdict.message if torch.equal(first, second) else "two calls differ"
        if first.dtype != operands.c.dtype or first.shape != operands.c.shape:
            message = f"the result is {tuple(first.shape)} of {first.dtype}"
        tuned = Tuned(problem, None, None)
        sizes = (problem.m, problem.n, problem.k, tuned.epilogue, STAND_IN_SMS, True, problem.batch)
        rows.append((problem.key, message, module.choose(tuned.product.signature, *sizes)))
    return {"rows": rows, "plans": len(module._PLANS), "counters": counters(module)}


def arguments(problem: GemmProblem, operands: Any) -> dict[str, Any]:
    """What matmul is given beside A and B."""
    given = {"bias": operands.bias, "c": operands.c_in, "scale_a": operands.scale_a, "scale_b": operands.scale_b}
    return {**given, "alpha": problem.alpha, "beta": problem.beta or 1.0, "activation": problem.activation}


def counters(module: Any) -> int:
    """The sum of all that kernels count with."""
    return sum(int(one.memory.abs().sum()) for one in module._COUNTERS.values())


def operator(module: Any, sizes: list[list[int]]) -> list[str]:
    """torch's own check of the operator, its gradients, and torch.compile, on these sizes."""
    import torch

    done = []
    for m, n, k in sizes:
        a, b, bias = (torch.randn(shape, dtype=torch.float16) for shape in ((m, k), (k, n), (n,)))
        expected = torch.addmm(bias, a, b)
        torch.library.opcheck(module.operator, (a, b, bias))
        torch.library.opcheck(module.operator, (a, b.t().contiguous().t()))
        compiled = torch.compile(lambda *x: module.matmul(*x).relu() * 2, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(a, b, bias), expected.relu() * 2, rtol=1e-2, atol=1e-1)
        gradients = []
        for product in (module.matmul, lambda a, b, bias: torch.addmm(bias, a, b)):
            leaves = [tensor.clone().requires_grad_() for tensor in (a, b, bias)]
            product(*leaves).sum().backward()
            gradients.append([leaf.grad for leaf in leaves])
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-2, atol=1e-1)
        done.append(f"{m}x{n}x{k}")
    assert counters(module) == 0
    return done


def epilogues(module: Any, names: list[str]) -> list[str]:
    """The operator, its gradients and torch.compile, with alpha, beta, a bias and an activation, of two products."""
    import torch

    done = []
    for activation in names:
        leaves = [torch.randn(shape) for shape in ((2, 8, 16), (2, 16, 24), (24,), (2, 8, 24))]

        def tuned(a: Any, b: Any, bias: Any, c: Any, activation: str = activation) -> Any:
            return module.matmul(a, b, bias, c=c, alpha=0.5, beta=2.0, activation=activation)

        def plain(a: Any, b: Any, bias: Any, c: Any, activation: str = activation) -> Any:
            value = 0.5 * (a @ b) + 2.0 * c + bias
            return value if activation == "none" else getattr(torch.nn.functional, activation)(value)

        torch.library.opcheck(module.operator, (*leaves, None, None, 0.5, 2.0, activation))
        compiled = torch.compile(tuned, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(*leaves), plain(*leaves), rtol=1e-4, atol=1e-4)
        gradients = []
        for product in (tuned, plain):
            inputs = [tensor.clone().requires_grad_() for tensor in leaves]
            (product(*inputs) * torch.arange(24)).sum().backward()
            gradients.append([leaf.grad for leaf in inputs])
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-3)
        done.append(activation)
    return done


def results(module: Any) -> list[str]:
    """The type of a product, as it comes and as it is asked for."""
    import torch

    a, b = torch.randn(32, 64, dtype=torch.float16), torch.randn(48, 64, dtype=torch.float16).t()
    found = [module.matmul(a, b), module.matmul(a, b, out_dtype=torch.float32)]
    for one in found:
        torch.testing.assert_close(one.float(), a.float() @ b.float(), rtol=1e-2, atol=1e-1)
    return [str(one.dtype) for one in found]


def faults(module: Any) -> dict[str, str]:
    """What is said of calls that are not taken."""
    import torch

    def half(*shape: int) -> Any:
        return torch.randn(shape, dtype=torch.float16)

    calls: dict[str, tuple[Any, ...]] = {
        "inner": (half(8, 4), half(5, 8)),
        "3d": (half(2, 8, 4), half(4, 8)),
        "empty": (half(0, 4), half(4, 8)),
        "type": (half(8, 4), torch.randn(4, 8)),
        "gaps in a": (half(8, 8)[:, :4], half(4, 8)),
        "layout": (half(4, 8).t(), half(8, 4).t()),
        "bias shape": (half(8, 4), half(4, 8), half(8, 1)),
        "bias type": (half(8, 4), half(4, 8), torch.randn(8)),
        "bias stride": (half(8, 4), half(4, 8), half(16)[::2]),
        "device": (half(8, 4), half(4, 8).to("meta")),
    }
    named: dict[str, dict[str, Any]] = {
        "activation": {"activation": "tanh"},
        "not tuned": {"activation": "relu"},
        "alpha": {"alpha": 0.5},
        "scales": {"scale_a": torch.ones(1), "scale_b": torch.ones(1)},
        "result": {"out_dtype": torch.float32},
        "c": {"c": half(8, 9)},
    }
    said = {}
    given: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {name: (tensors, {}) for name, tensors in calls.items()}
    given |= {name: ((half(8, 4), half(4, 8)), words) for name, words in named.items()}
    for name, (tensors, words) in given.items():
        try:
            module.matmul(*tensors, **words)
            said[name] = "nothing"
        except (TypeError, ValueError, RuntimeError) as error:
            said[name] = f"{type(error).__name__}: {error}"
    module._INTERPRETED = False
    module._PLANS.clear()
    try:
        module.matmul(half(8, 4), half(4, 8))
    except ValueError as error:
        said["cpu"] = str(error)
    return said


def unaligned(module: Any) -> list[str]:
    """A tuned size by descriptors whose matrices start 2 bytes late; the same matrix for both; the same plan again."""
    import torch

    memory = torch.randn(2 * 96 * 96 + 1, dtype=torch.float16)
    done = []
    for start in (0, 1):
        a, b = memory[start:][: 96 * 32].view(96, 32), memory[start:][4096:][: 32 * 64].view(32, 64)
        torch.testing.assert_close(module.matmul(a, b), a @ b, rtol=1e-2, atol=1e-1)
        done.append(next(reversed(module._PLANS.values())).config["family"])
    square = memory[: 64 * 64].view(64, 64)
    torch.testing.assert_close(module.matmul(square, square), square @ square, rtol=1e-2, atol=1e-1)
    other = torch.randn(64, 64, dtype=torch.float16)
    torch.testing.assert_close(module.matmul(square, other), square @ other, rtol=1e-2, atol=1e-1)
    torch.testing.assert_close(module.matmul(other, square), other @ square, rtol=1e-2, atol=1e-1)
    return done
