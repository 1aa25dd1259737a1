"""The parts of a round of search: a GPU times one while the kernels of the next are compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gemm_tuner.core.records import Problem, Target
from gemm_tuner.search import SizeView
from gemm_tuner.search.compile_work import dear
from gemm_tuner.space.size_state import Named, OfSize, SizeState

# So many parts at the most, with so many configurations each at the least.
PARTS, LEAST_OF_A_PART = 4, 128
# A plan more costs a GPU 0.1 s.
LEAST_WAIT_S = 0.3
# A choice for 40 sizes takes 0.5 s, in which an H100 screens about 80 configurations.
CHOSEN_AT_ONCE, LEAST_A_SIZE = 10, 2
# Where whole sizes would make fewer parts: up to SHARES parts, each with a share of every size, of the largest one at
# least LEAST_OF_A_SIZE configurations. Many, since nothing is left to compile while the last one is timed.
SHARES, LEAST_OF_A_SIZE = 8, 512


def by_compile_work(asked: Named, target: Target) -> list[Named]:
    """The proposals whose kernels take little to compile, and the others; only those of both that there are."""
    late, soon = divided(asked, [set(dear(view_of(state), names, target)) for state, names in asked])
    return [some for some in (soon, late) if some]


def ready_first(
    asked: Named,
    is_ready: Callable[[SizeState, str], bool],
    wait_s: Callable[[Named], float],
    home: Mapping[Problem, int],
    gpus: int,
) -> list[Named]:
    """The proposals whose kernels are ready, and then the others; all together if GPUs would not wait for the others,
    or one of them has few that are ready.

    wait_s: returns how long proposals are waited for until they are compiled, seconds. home: as of ``even_parts``.
    """
    first, rest = divided(asked, [{name for name in names if is_ready(state, name)} for state, names in asked])
    of_gpu = Counter({home.get(state.problem): 0 for state, names in asked if names})
    for state, names in first:
        of_gpu[home.get(state.problem)] += len(names)
    are_many = all(count >= LEAST_OF_A_PART * (gpus if gpu is None else 1) for gpu, count in of_gpu.items())
    return [first, rest] if are_many and wait_s(rest) >= LEAST_WAIT_S else [asked]


def divided(asked: Named, chosen: Sequence[Collection[str]]) -> tuple[Named, Named]:
    """The proposals that are among the chosen ones of their sizes, and the others, in their order; no size without
    any."""
    with_chosen = list(zip(asked, chosen, strict=True))
    those = [(state, [name for name in names if name in of]) for (state, names), of in with_chosen]
    others = [(state, [name for name in names if name not in of]) for (state, names), of in with_chosen]
    return [one for one in those if one[1]], [one for one in others if one[1]]


def even_parts(asked: Named, home: Mapping[Problem, int], gpus: int) -> list[Named]:
    """The proposals in parts, with about as many configurations of each GPU, and sizes for all GPUs: those that a part
    has none for would rest, and what is dealt anew with a part knows nothing of other parts. Parts are of whole sizes,
    or, where there are few sizes and one has many configurations, each has a share of every size.

    home: the GPU of each size that has one.
    """
    of_each = min(SHARES, max((len(names) for _, names in asked), default=0) // LEAST_OF_A_SIZE)
    most = min(PARTS, size_of(asked) // LEAST_OF_A_PART, len(asked) // gpus)
    if of_each > most:
        pieces = [[(state, piece_of(names, part, of_each)) for state, names in asked] for part in range(of_each)]
        return [[one for one in part if one[1]] for part in pieces]
    parts: list[Named] = [[] for _ in range(max(1, most))]
    shares: dict[int | None, Named] = {}
    for state, names in asked:
        shares.setdefault(home.get(state.problem), []).append((state, names))
    for share in shares.values():
        total, dealt = max(1, size_of(share)), 0
        for state, names in share:
            parts[min(len(parts) * dealt // total, len(parts) - 1)].append((state, names))
            dealt += len(names)
    return [part for part in parts if part]


def piece_of(names: list[str], part: int, parts: int) -> list[str]:
    """Of names in order, those of one of so many equal parts, counted from 0."""
    return names[len(names) * part // parts : len(names) * (part + 1) // parts]


def lasts_longer_than_a_choice(asked: Named, sizes: int) -> bool:
    """Whether the timing of these takes about as long as the choice of what the search may propose after them, for so
    many sizes of the run. Few sizes are chosen for in no time."""
    return sizes < CHOSEN_AT_ONCE or size_of(asked) >= LEAST_A_SIZE * sizes


def joined(parts: Iterable[Named]) -> Named:
    """The sizes of all parts."""
    return [one for part in parts for one in part]


def merged(some: Iterable[OfSize]) -> Named:
    """Each size once, with the names that it has in any part, in their order."""
    found: dict[Problem, OfSize] = {}
    for state, names in some:
        found.setdefault(state.problem, (state, []))[1].extend(names)
    return list(found.values())


def size_of(asked: Named) -> int:
    """The number of configurations."""
    return sum(len(names) for _, names in asked)


def cost_of(state: SizeState, names: list[str]) -> float:
    """Relative cost of a size's screening, from predicted times and launch overhead."""
    return sum(state.predicted_us[name] + 150.0 for name in names)


def view_of(state: SizeState) -> SizeView:
    """The search's view of a size."""
    return SizeView(state.problem, state.candidates(), state.screened_us(), state.failed())


def remaining(asked: Named) -> Named:
    """Those configurations that have no status yet."""
    return [(state, [name for name in names if not state.ended(name)]) for state, names in asked]
