"""The graph on a device: kept rows, their lists and the influence of the classes as torch tensors.

This is the only module that uses torch, and it is imported only if a device is asked for. It does
what `kept_rows`, `neighbour_search` and `conjugate_gradients` do on the CPU. Tensors of a state are
never changed in place: an update copies them, which takes less than a thousandth of a second on a
device. Nothing depends on the order in which threads add numbers, so that the same rows give the
same model.

A list is a sorted row of *keys*, the squared distance in the upper 32 bits and the slot in the
lower ones: sorting keys sorts by distance, and by slot among equal distances.

Matrix products in single precision give lower bounds of the distances of a strip of queries to all
kept rows. The smallest of each of many groups of rows are found first, then the smallest of the few
groups that may have a neighbour. The distances of these rows are computed from differences. If the
bounds do not prove that no other row is nearer, the query is compared again in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.graph.conjugate_gradients import (
    LARGEST_NUMBER_OF_STEPS,
    LAST_SHARE,
    ROW_TOLERANCE,
    SMALLEST_RESIDUAL,
    SWEEPS,
    TOLERANCE,
    connected_rows,
)
from seqmed.graph.kept_rows import BLOCK, SHARPNESS, SPARE, KeptRows, Lists
from seqmed.graph.metrics import (
    LARGEST_COORDINATE,
    Cosine,
    Euclidean,
    Metric,
    Stored,
    without_sketch,
)
from seqmed.kernels.on_vectors import FAR_FROM_CENTRE, RBF, Expansion, Kernel, Linear, Polynomial
from seqmed.numeric.arrays import Array, Indices, Points, Single, bit_sums
from seqmed.numeric.execution import MANY_VALUES
from seqmed.numeric.words import DeviceMemoryError, in_words

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from seqmed.graph.propagation import GraphState, Targets
else:
    try:
        import torch
    except ImportError:
        torch = None

# Number of rows by which the arrays of rows grow, and largest number of rows in a group.
ALIGNED = 1024
# Candidates for a list besides its entries.
MORE_CANDIDATES = 8
# Largest number of inner products at once (2 GB), of values gathered at once (1 GB), of rows copied
# from the host at once, of pairs inserted in lists at once, and of pairs whose rows are gathered.
PRODUCTS, GATHERED, COPIED, PAIRS, GATHERED_PAIRS = 2**29, 2**28, 2**16, 2**20, 2**18
# The numbers of products and of gathered values on torch's CPU device, which has a small cache.
PRODUCTS_OF_CPU, GATHERED_OF_CPU = 2**22, 2**22
# Unit roundoff of single precision.
ROUNDOFF = 2.0**-24
# Number of steps along edges after which rows with a path to a label are found on the CPU.
STEPS_TO_LABELS = 100
# The key of no entry: the distance inf and the slot -1.
EMPTY = (0x7F800000 << 32) | 0xFFFFFFFF
SLOT_BITS = 0xFFFFFFFF


# -- devices ---------------------------------------------------------------------------------------


def find_device(name: str) -> torch.device:
    """Return the device of torch with this name; refuse one that is not there.

    "torch:cpu" is torch's own CPU device, for tests.
    """
    if torch is None:
        raise ImportError(
            f"device={name!r} needs torch, which is not installed: install it with pip install "
            "'seqmed[gpu]', or set device='cpu'."
        )
    return _found_device(name)


@cache
def _found_device(name: str) -> torch.device:
    try:
        device = torch.device(name.removeprefix("torch:"))
        torch.zeros(1, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        # of an unknown name, a missing driver, an unknown backend, and no double precision
        found = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        raise ValueError(
            f"device={name!r} is not available, expected 'cpu' or a device of torch with double "
            f"precision: torch {torch.__version__} found {', '.join(found) or 'no device'}. Set "
            "device='cpu', or install a torch that supports the device: pip install 'seqmed[gpu]'."
        ) from error
    return device


@contextmanager
def device_memory(name: str, n: int, p: int, n_classes: int) -> Iterator[None]:
    """Compute in full single precision; explain that a device has run out of memory.

    ``n`` kept rows, ``p`` columns and ``n_classes`` are named in the error.
    """
    precision = torch.get_float32_matmul_precision()
    try:
        if precision != "highest":
            torch.set_float32_matmul_precision("highest")
        with torch.no_grad():
            yield
    except (torch.OutOfMemoryError, RuntimeError) as error:
        known = ("out of memory", "can't allocate memory")
        if not any(words in str(error).lower() for words in known):
            raise
        needed = bytes_needed(n, p, n_classes) / 1e9
        smaller = in_words("--graph-memory", "graph_memory")
        raise DeviceMemoryError(
            f"the device {name!r} ran out of memory: a graph of {n} rows with {p} columns and "
            f"{n_classes} classes needs about {needed:.1f} GB. The model is unchanged: start a new "
            f"one with a smaller {smaller}, or use the device cpu."
        ) from error
    finally:
        if precision != "highest":
            torch.set_float32_matmul_precision(precision)


def bytes_needed(n: int, p: int, n_classes: int, n_neighbors: int = 10) -> float:
    """Return a bound of the bytes on the device while a graph of n rows is updated.

    The rows are there twice, before and after the update. The rest is for the search, which has two
    strips of products and the rows in double precision, or for the solution, whichever is larger.
    """
    kept = n * (4.0 * p + 8.0 * np.ceil(SPARE * n_neighbors) + 8.0 * n_classes + 8.0)
    search = 9.0 * PRODUCTS + 6.0 * GATHERED + 8.0 * n * p
    solution = 2.0 * n * n_neighbors * (50.0 + 4.0 * n_classes) + 24.0 * n * n_classes
    return float(2.0 * kept + max(search, solution))


def to_device(state: GraphState, name: str) -> GraphState:
    """Return the state on a device, "cpu" for arrays of numpy; itself if it is there."""
    now = state.rows.device
    if now == name:
        return state
    state = to_host(state)
    if name == "cpu":
        return state
    rows, metric, device = state.rows, state.rows.metric, find_device(name)
    blocks = [each.rows for each in rows.blocks] or [np.zeros((0, 0), np.float32)]
    check_supported(metric, blocks[0], name)
    with device_memory(name, rows.size, blocks[0].shape[1], state.influence.shape[1]):
        points = np.concatenate(blocks)
        stored = stored_on(torch.from_numpy(points).to(device), metric)
        moved = DeviceRows(
            metric=metric,
            n_neighbors=rows.n_neighbors,
            device=name,
            points=with_room(stored.points, rows.size, 0.0),
            squares=with_room(stored.squares, rows.size, torch.inf),
            keys=keys_of(rows.lists, device),
            horizons=torch.from_numpy(rows.lists.horizons).to(device),
        )
        return replace(
            state,
            rows=cast(KeptRows, moved),
            influence=cast(Single, torch.from_numpy(state.influence).to(device)),
            solution=cast(Single, torch.from_numpy(state.solution).to(device)),
        )


def to_host(state: GraphState) -> GraphState:
    """Return the state with arrays of numpy."""
    if state.rows.device == "cpu":
        return state
    rows = cast(Any, state.rows)
    points = rows.points[: rows.size].cpu().numpy()
    norms = rows.squares[: rows.size].cpu().numpy()
    blocks = tuple(
        without_sketch(points[start : start + BLOCK], norms[start : start + BLOCK])
        for start in range(0, rows.size, BLOCK)
    )
    metric = rows.metric.remeasured(blocks, rows.size) or rows.metric
    return replace(
        state,
        rows=KeptRows(metric, rows.n_neighbors, tuple(map(metric.restored, blocks)), rows.lists),
        influence=cast(Any, state.influence).cpu().numpy(),
        solution=cast(Any, state.solution).cpu().numpy(),
    )


def check_supported(metric: Metric, points: Points, name: str) -> None:
    """Refuse sparse rows and distances of kernels."""
    if sp.issparse(points):
        raise ValueError(
            f"device={name!r} got sparse rows, expected dense rows: set device='cpu', or pass "
            "X.toarray() if it fits the memory."
        )
    if not isinstance(metric, Euclidean | Cosine):
        raise ValueError(
            f"device={name!r} got the metric {metric.name!r}, expected 'euclidean' or 'cosine': "
            "set device='cpu', or another metric."
        )


# -- rows and lists --------------------------------------------------------------------------------


class DeviceStored(NamedTuple):
    """Rows as a metric stores them, on a device: points (n, p) and their squared norms (n,)."""

    points: Tensor
    squares: Tensor

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self.points.shape[0])

    @property
    def norms(self) -> Single:
        """Squared norms (n,) as an array."""
        return np.asarray(self.squares.cpu().numpy())

    def take(self, rows: Any) -> DeviceStored:
        """Return the selected rows."""
        if isinstance(rows, np.ndarray):
            rows = torch.from_numpy(rows).to(self.points.device)
        return DeviceStored(self.points[rows], self.squares[rows])


class DeviceLists:
    """Neighbour lists on a device, as a tensor of keys (m, L); its attributes are arrays."""

    def __init__(self, keys: Tensor, horizons: Tensor) -> None:
        self.keys, self.on_device = keys, horizons

    @property
    def slots(self) -> Any:
        """(m, L) int32, the neighbours by their slot, -1 for none."""
        return slots_of(self.keys).to(torch.int32).cpu().numpy()

    @property
    def distances(self) -> Any:
        """(m, L) float32, squared distances in ascending order."""
        return distances_of(self.keys).cpu().numpy()

    @property
    def horizons(self) -> Any:
        """(m,) float32; every other row nearer than this is in the list."""
        return self.on_device.cpu().numpy()

    @property
    def sizes(self) -> Any:
        """(m,) int32, the number of entries."""
        return (self.keys != EMPTY).sum(dim=1, dtype=torch.int32).cpu().numpy()

    @property
    def n_lists(self) -> int:
        """Number of lists."""
        return int(self.keys.shape[0])


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """Kept rows on a device, with exact neighbour lists; like `KeptRows`.

    Parameters
    ----------
    metric, n_neighbors : as in `KeptRows`.
    device : name of the device.
    points : (w, p) the rows; from `size` on there are zeros, w is a multiple of `ALIGNED`.
    squares : (w,) squared norms; from `size` on there is inf.
    keys : (n, L) lists.
    horizons : (n,) as in `Lists`.
    """

    metric: Metric
    n_neighbors: int
    device: str
    points: Tensor
    squares: Tensor
    keys: Tensor
    horizons: Tensor

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self.keys.shape[0])

    @property
    def lists(self) -> Lists:
        """The neighbour lists of all rows, as arrays."""
        return as_arrays(DeviceLists(self.keys, self.horizons))

    @property
    def list_length(self) -> int:
        """Largest number of entries of a list."""
        return int(self.keys.shape[1])

    def computing(self, n_classes: int = 0) -> Any:
        """Return the context in which the device computes."""
        return device_memory(self.device, self.size, self.points.shape[1], n_classes)

    def lists_of(self, slots: Indices) -> Lists:
        """Return the lists of some rows, as arrays."""
        chosen = self.indices(slots)
        return as_arrays(DeviceLists(self.keys[chosen], self.horizons[chosen]))

    def indices(self, values: NDArray[Any]) -> Tensor:
        """Return indices on the device."""
        return torch.from_numpy(np.asarray(values, dtype=np.int64)).to(self.points.device)

    def take(self, slots: Indices) -> Stored:
        """Return the rows of the given slots, in their order, as arrays."""
        chosen = self.indices(slots)
        return without_sketch(self.points[chosen].cpu().numpy(), self.squares[chosen].cpu().numpy())

    def emptied(self, metric: Metric) -> DeviceRows:
        """Return no rows, of another metric."""
        return replace(
            self,
            metric=metric,
            points=self.points[:0],
            squares=self.squares[:0],
            keys=self.keys[:0],
            horizons=self.horizons[:0],
        )

    def store(self, points: Points) -> DeviceStored:
        """Return rows in the stored form."""
        check_supported(self.metric, points, self.device)
        with self.computing():
            return store_on(points, self.metric, self.points.device)

    def placed(self, stored: Stored) -> DeviceStored:
        """Return stored rows on the device."""
        return stored_on(torch.from_numpy(stored.rows).to(self.points.device), self.metric)

    def likely_equal(self, rows: Points) -> Indices:
        """Return the slots of rows whose bits have the same sum as those of one of ``rows``."""
        sums = np.unique(bit_sums(rows)).astype(np.int64)
        if not sums.size:
            return np.zeros(0, dtype=np.intp)
        wanted, found = torch.from_numpy(sums).to(self.points.device), []
        for start in range(0, self.size, COPIED):
            part = self.points[start : min(start + COPIED, self.size)] + 0.0
            own = (part.view(torch.int32).to(torch.int64) & SLOT_BITS).sum(dim=1)
            found.append(torch.isin(own, wanted).nonzero()[:, 0] + start)
        return np.asarray(torch.cat(found).cpu().numpy(), dtype=np.intp)

    # -- search ------------------------------------------------------------------------------------

    def search(self, queries: Any, own: NDArray[Any] | None = None, length: int = 0) -> DeviceLists:
        """Return the nearest rows of every query; see `KeptRows.search`."""
        with self.computing():
            exclude = None if own is None else self.indices(own)
            return self.nearest(queries, exclude, length or self.n_neighbors)

    def nearest(
        self,
        queries: DeviceStored,
        own: Tensor | None,
        length: int,
        use: Callable[[Tensor, slice], None] | None = None,
    ) -> DeviceLists:
        """Return the nearest rows of queries, without the slots ``own`` (m,), -1 for none.

        ``use`` is called with the `bounds` of every strip of queries.
        """
        keys, horizons = self.no_lists(queries.size, length)
        certain = torch.ones(queries.size, dtype=torch.bool, device=keys.device)
        for rows in self.strips(queries.size, length):
            part, exclude = queries.take(rows), None if own is None else own[rows]
            bounds = self.bounds(part)
            keys[rows], horizons[rows], certain[rows] = self.nearest_of(
                bounds, part, exclude, length
            )
            if use is not None:
                use(bounds, rows)
            del bounds  # before those of the next strip are computed
        self.search_again(queries, own, keys, horizons, certain)
        return DeviceLists(keys, horizons)

    def search_again(
        self,
        queries: DeviceStored,
        own: Tensor | None,
        keys: Tensor,
        horizons: Tensor,
        certain: Tensor,
    ) -> None:
        """Search with narrower bounds for the queries that are not certain; in place.

        The bounds are computed in double precision. Where even these are not narrow enough, all
        distances are computed.
        """
        length, doubles = keys.shape[1], None
        for exact in (False, True):
            if bool(certain.all()):
                return
            if not exact:
                squares = squared_norms(self.points, self.metric, torch.float64)
                doubles = self.points.double(), squares.where(self.squares < torch.inf, torch.inf)
            again = (~certain).nonzero()[:, 0]
            for rows in self.strips(
                again.shape[0], length, 2 * self.points.shape[1] if exact else 8
            ):
                chosen = again[rows]
                part, exclude = queries.take(chosen), None if own is None else own[chosen]
                keys[chosen], horizons[chosen], certain[chosen] = self.nearest_of(
                    self.all_distances(part) if exact else self.bounds(part, doubles),
                    part,
                    exclude,
                    length,
                    exact=exact,
                )

    def all_distances(self, queries: DeviceStored) -> Tensor:
        """Return the squared distances (m, w) of queries from all rows."""
        rows = self.points.expand(queries.size, *self.points.shape).clone()
        return self.distances(queries.points, rows).masked_fill_(
            self.squares == torch.inf, torch.inf
        )

    def no_lists(self, n: int, length: int) -> tuple[Tensor, Tensor]:
        """Return the keys and horizons of n empty lists."""
        device = self.points.device
        keys = torch.full((n, length), EMPTY, dtype=torch.int64, device=device)
        return keys, torch.full((n,), self.metric.limit, dtype=torch.float32, device=device)

    def strips(self, n: int, length: int, item: int = 4) -> list[slice]:
        """Return slices of n queries that bound the products and gathered values of a strip."""
        on_cpu = self.points.device.type == "cpu"
        products = PRODUCTS_OF_CPU if on_cpu else PRODUCTS
        gathered = GATHERED_OF_CPU if on_cpu else GATHERED
        width = (length + MORE_CANDIDATES) * max(self.points.shape[1], 2 * ALIGNED // 8)
        size = max(1, min(4 * products // item // max(1, self.points.shape[0]), gathered // width))
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def bounds(self, queries: DeviceStored, rows: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return lower bounds of squared distances (m, w) minus the norms of the queries.

        ``rows`` are the kept rows and their norms, in double precision for narrower bounds.
        """
        points, squares = (self.points, self.squares) if rows is None else rows
        lowered = (1.0 - self.slack(points.dtype)) * squares
        return torch.addmm(lowered, -2.0 * queries.points.to(points.dtype), points.T)

    def slack(self, dtype: torch.dtype) -> float:
        """Return a bound of the errors of a distance, relative to the sum of the two norms."""
        return float((2 * self.points.shape[1] + 32) * torch.finfo(dtype).eps / 2.0)

    def nearest_of(
        self,
        bounds: Tensor,
        queries: DeviceStored,
        own: Tensor | None,
        length: int,
        *,
        exact: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return keys (m, length), horizons (m,), and whether no other row can be nearer (m,).

        ``bounds`` (m, w) are those of `bounds`, or ``exact`` distances. They are inf afterwards for
        the slots ``own``.
        """
        if own is not None:
            rows = (own >= 0).nonzero()[:, 0]
            bounds[rows, own[rows]] = torch.inf
        count = min(length + MORE_CANDIDATES, bounds.shape[1])
        values, slots = smallest(bounds, count)
        distances = values if exact else self.distances(queries.points, self.points[slots])
        valid = (values < torch.inf) & (distances < self.metric.limit)
        keys = torch.where(valid, make_keys(distances, slots), EMPTY).sort(dim=1).values
        if keys.shape[1] <= length:  # there are fewer rows
            more = keys.new_full((keys.shape[0], length + 1 - keys.shape[1]), EMPTY)
            keys = torch.cat([keys, more], dim=1)
        # every row that is no candidate is at least this far
        rest = values.amax(dim=1)
        if not exact:
            squares = squared_norms(queries.points, self.metric, bounds.dtype)
            rest += (1.0 - self.slack(bounds.dtype)) * squares
        rest = rest.to(torch.float32).clamp_(min=0.0)
        keys, after = keys[:, :length], distances_of(keys[:, length])
        last, full = distances_of(keys[:, -1]), keys[:, -1] != EMPTY
        rounding = (self.points.shape[1] + 2) * ROUNDOFF  # of a distance
        certain = ((1.0 - rounding) * last <= rest) | ~full
        horizons = torch.minimum(after, rest).clamp_(max=self.metric.limit)
        return keys, torch.where(full, horizons, self.metric.limit), certain

    def distances(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Return squared distances between queries (m, p) and rows (m, c, p); rows are changed."""
        if self.metric.unit_norms:
            return (2.0 - 2.0 * rows.mul_(queries[:, None]).sum(dim=-1)).clamp_(min=0.0)
        return rows.sub_(queries[:, None]).square_().sum(dim=-1)

    # -- updates -----------------------------------------------------------------------------------

    def put(self, slots: Indices, entering: DeviceStored) -> DeviceRows:
        """Return the rows with ``entering`` in the given distinct slots; see `KeptRows.put`."""
        if not slots.size:
            return self
        size = max(self.size, int(slots.max()) + 1)
        with device_memory(self.device, size, entering.points.shape[1], 0):
            return self.after_put(self.indices(slots), entering, size)

    def after_put(self, slots: Tensor, entering: DeviceStored, size: int) -> DeviceRows:
        """Return the rows with ``entering`` in the given slots, ``size`` rows in all."""
        length = self.keys.shape[1]
        points = with_room(self.points if self.size else entering.points[:0], size, 0.0)
        squares = with_room(self.squares, size, torch.inf)
        points[slots], squares[slots] = entering
        kept = replace(self, points=points, squares=squares)
        if 2 * slots.shape[0] >= size:  # most rows are new: search for the neighbours of all
            every = DeviceStored(points[:size], squares[:size])
            found = kept.nearest(every, torch.arange(size, device=points.device), length)
            return replace(kept, keys=found.keys, horizons=found.on_device)
        keys, horizons = kept.no_lists(size, length)
        keys[: self.size], horizons[: self.size] = self.keys, self.horizons
        drop_slots(keys, slots, size)
        horizons[slots] = -torch.inf  # entering rows get their lists last

        def enter(bounds: Tensor, rows: slice) -> None:
            part = entering.take(rows)
            bounds += (1.0 - kept.slack(bounds.dtype)) * part.squares[:, None]
            kept.insert_in_lists(bounds[:, :size], part, slots[rows], keys, horizons)

        found = kept.nearest(entering, slots, length, enter)
        keys[slots], horizons[slots] = found.keys, found.on_device
        complete = horizons == self.metric.limit
        short = ((keys[:, self.n_neighbors - 1] == EMPTY) & ~complete).nonzero()[:, 0]
        if short.shape[0]:  # deletions have made their lists too short
            again = kept.nearest(DeviceStored(points[short], squares[short]), short, length)
            keys[short], horizons[short] = again.keys, again.on_device
        return replace(kept, keys=keys, horizons=horizons)

    def insert_in_lists(
        self,
        bounds: Tensor,
        entering: DeviceStored,
        slots: Tensor,
        keys: Tensor,
        horizons: Tensor,
    ) -> None:
        """Insert entering rows in the lists of the rows that they are near to; in place.

        ``bounds`` (m, n) are lower bounds of their squared distances to all rows.
        """
        near = bounds < horizons
        ends = near.sum(dim=1).cumsum(dim=0).cpu().numpy()
        start = done = 0
        while start < ends.size:  # as many queries at once as have `PAIRS` pairs
            stop = max(start + 1, int(np.searchsorted(ends, done + PAIRS, side="right")))
            queries, owners = near[start:stop].nonzero(as_tuple=True)
            queries += start
            distances = torch.empty(owners.shape, dtype=torch.float32, device=owners.device)
            for first in range(0, owners.shape[0], GATHERED_PAIRS):
                part = slice(first, first + GATHERED_PAIRS)
                pairs = entering.points[queries[part]], self.points[owners[part]][:, None]
                distances[part] = self.distances(*pairs)[:, 0]
            nearer = (distances < horizons[owners]).nonzero()[:, 0]
            new = make_keys(distances[nearer], slots[queries[nearer]])
            insert_keys(keys, horizons, owners[nearer], new)
            start, done = stop, int(ends[stop - 1])


def store_on(points: Array, metric: Metric, device: torch.device) -> DeviceStored:
    """Return rows as the metric stores them, on a device; the same to the bit as on the CPU."""
    if not isinstance(metric, Euclidean):
        stored = metric.store(points)
        return stored_on(torch.from_numpy(stored.rows).to(device), metric)
    n, p = points.shape
    rows = torch.empty((n, p), dtype=torch.float32, device=device)
    centre = torch.from_numpy(metric.centre).to(device)
    # a tensor: a division by a number would be a multiplication with its inverse
    scale = torch.tensor([metric.scale], dtype=torch.float64, device=device)
    for start in range(0, n, COPIED):
        part = np.ascontiguousarray(points[start : start + COPIED], dtype=np.float64)
        with np.errstate(all="ignore"):
            moved = (torch.from_numpy(part).to(device) - centre).div_(scale)
        rows[start : start + COPIED] = moved.clamp_(-LARGEST_COORDINATE, LARGEST_COORDINATE)
    return stored_on(rows, metric)


def stored_on(rows: Tensor, metric: Metric) -> DeviceStored:
    """Return stored rows on a device with their squared norms."""
    return DeviceStored(rows, squared_norms(rows, metric, torch.float32))


def squared_norms(rows: Tensor, metric: Metric, dtype: torch.dtype) -> Tensor:
    """Return the squared norms (n,) of stored rows."""
    squares = torch.ones(rows.shape[0], dtype=dtype, device=rows.device)
    if not metric.unit_norms:
        for start in range(0, rows.shape[0], COPIED):
            part = rows[start : start + COPIED].double()
            squares[start : start + COPIED] = part.square().sum(dim=1)
    return squares


def with_room(values: Tensor, size: int, fill: float) -> Tensor:
    """Return a copy of values (w, ...) with room for ``size`` rows, filled up."""
    room = -(-size // ALIGNED) * ALIGNED
    result = torch.full((room, *values.shape[1:]), fill, dtype=values.dtype, device=values.device)
    n = min(room, values.shape[0])
    result[:n] = values[:n]
    return result


def as_arrays(lists: DeviceLists) -> Lists:
    """Return lists as arrays of numpy."""
    return Lists(lists.slots, lists.distances, lists.horizons, lists.sizes)


# -- keys ------------------------------------------------------------------------------------------


def make_keys(distances: Tensor, slots: Tensor) -> Tensor:
    """Return the keys of entries; `EMPTY` for the distance inf and the slot -1."""
    bits = distances.contiguous().view(torch.int32).to(torch.int64)
    return (bits << 32) | (slots.to(torch.int64) & SLOT_BITS)


def keys_of(lists: Lists, device: torch.device) -> Tensor:
    """Return the keys of lists of arrays."""
    slots, distances = torch.from_numpy(lists.slots), torch.from_numpy(lists.distances)
    return make_keys(distances.to(device), slots.to(device))


def distances_of(keys: Tensor) -> Tensor:
    """Return the distances of keys."""
    return (keys >> 32).to(torch.int32).view(torch.float32)


def slots_of(keys: Tensor) -> Tensor:
    """Return the slots of keys as 64-bit integers, -1 for `EMPTY`."""
    return torch.where(keys == EMPTY, -1, keys & SLOT_BITS)


def drop_slots(keys: Tensor, gone: Tensor, size: int) -> None:
    """Delete the entries of the slots ``gone`` from all lists, in place."""
    mask = torch.zeros(size + 1, dtype=torch.bool, device=keys.device)
    mask[gone] = True
    for start in range(0, keys.shape[0], 2**22):
        part = keys[start : start + 2**22]
        dropped = mask[slots_of(part)]  # the slot -1 is the last place
        changed = dropped.any(dim=1).nonzero()[:, 0]
        part[changed] = torch.where(dropped[changed], EMPTY, part[changed]).sort(dim=1).values


def insert_keys(keys: Tensor, horizons: Tensor, owners: Tensor, new: Tensor) -> None:
    """Insert entries in the lists of their owners, in place; full lists lose their last entries.

    ``owners`` and ``new`` (c,) are the lists and the keys of the entries.
    """
    if not owners.shape[0]:
        return
    length = keys.shape[1]
    new, order = new.sort()
    owners, by_owner = owners[order].sort(stable=True)
    new = new[by_owner]
    changed, places, counts = owners.unique_consecutive(return_inverse=True, return_counts=True)
    starts = counts.cumsum(0) - counts
    ranks = torch.arange(owners.shape[0], device=keys.device) - starts[places]
    kept = ranks < length
    added = torch.full((changed.shape[0], length), EMPTY, dtype=torch.int64, device=keys.device)
    added[places[kept], ranks[kept]] = new[kept]
    merged = torch.cat([keys[changed], added], dim=1).sort(dim=1).values
    keys[changed] = merged[:, :length]
    horizons[changed] = torch.minimum(horizons[changed], distances_of(merged[:, length]))


def smallest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the smallest values (m, count) of every row of (m, w), and their columns.

    They are in the groups with the smallest minima. Column j is in group ``j % g``, so that minima
    are found by reading consecutive values. The size of the groups balances the two steps.
    """
    m, width = values.shape
    rows = 1
    while rows < ALIGNED and 4 * rows * rows * count <= width and width % (2 * rows) == 0:
        rows *= 2
    groups = width // rows
    if rows < 4 or groups <= count:
        found = values.topk(count, dim=1, largest=False, sorted=False)
        return found.values, found.indices
    minima = values.view(m, rows, groups).amin(dim=1)
    chosen = minima.topk(count, dim=1, largest=False, sorted=False).indices
    offsets = groups * torch.arange(rows, device=values.device)
    columns = (chosen[:, :, None] + offsets).view(m, count * rows)
    found = values.gather(1, columns).topk(count, dim=1, largest=False, sorted=False)
    return found.values, columns.gather(1, found.indices)


# -- label propagation -----------------------------------------------------------------------------


def weights_of(keys: Tensor, n_neighbors: int) -> Tensor:
    """Return heat weights (n, k) of the k nearest neighbours, 0 if a list has fewer entries."""
    nearest = keys[:, :n_neighbors]
    used, distances = nearest != EMPTY, distances_of(nearest)
    last = (used.sum(dim=1, keepdim=True) - 1).clamp(min=0)
    widths = distances.gather(1, last)
    shares = torch.where(used & (widths > 0), distances / widths, 0.0)
    return torch.where(used, torch.exp(-SHARPNESS * shares), 0.0)


def mean_of_neighbours(rows: DeviceRows, influence: Tensor, found: Any) -> Tensor:
    """Return the heat-weighted means (m, K) of values (n, K) over the neighbours of m rows."""
    keys = keys_of(found, rows.points.device) if isinstance(found, Lists) else found.keys
    k, n_classes = min(rows.n_neighbors, keys.shape[1]), influence.shape[1]
    means = torch.empty((keys.shape[0], n_classes), dtype=torch.float32, device=keys.device)
    size = max(1, GATHERED // 8 // max(1, k * n_classes))
    for start in range(0, keys.shape[0], size):
        part = keys[start : start + size, :k]
        weights = weights_of(part, k)
        totals = weights.sum(dim=1, keepdim=True)
        weights /= torch.where(totals > 0, totals, 1.0)
        values = influence[slots_of(part).clamp(min=0)]
        means[start : start + size] = values.mul_(weights[:, :, None]).sum(dim=1)
    return means


class Edges(NamedTuple):
    """The matrix ``A + A'`` of n vertices by rows, for a matrix A given by lists.

    Attributes
    ----------
    ends : (n + 1,) where the entries of each row begin and end.
    rows, columns, weights : (e,) the entries.
    """

    ends: Tensor
    rows: Tensor
    columns: Tensor
    weights: Tensor

    def times(self, values: Tensor) -> Tensor:
        """Return the product with values (n, K); sums are computed in a fixed order."""
        parts = values.index_select(0, self.columns).mul_(self.weights[:, None])
        return torch.segment_reduce(parts, "sum", offsets=self.ends, axis=0, unsafe=True)


def symmetric(slots: Tensor, weights: Tensor) -> Edges:
    """Return the matrix ``A + A'``; ``slots`` and ``weights`` (n, k) are the lists of A."""
    n, k = slots.shape
    used = (weights != 0).reshape(-1).nonzero()[:, 0]
    rows = used // k
    columns, entries = slots.reshape(-1)[used], weights.reshape(-1)[used]
    both = torch.cat([rows, columns])
    both, order = both.sort(stable=True)
    ends = torch.searchsorted(both, torch.arange(n + 1, device=both.device))
    columns, entries = torch.cat([columns, rows])[order], torch.cat([entries, entries])[order]
    return Edges(ends, both, columns, entries)


def mean_influence(state: GraphState, found: Any) -> Single:
    """Return the heat-weighted mean of U over the neighbours of m rows, (m, K), as an array."""
    rows = cast(DeviceRows, state.rows)
    with rows.computing(state.influence.shape[1]):
        means = mean_of_neighbours(rows, cast("Tensor", state.influence), found)
        return np.asarray(means.cpu().numpy())


def scores_on(state: GraphState, found: Any, factors: Array, otherwise: Array) -> Array:
    """Return the means over the neighbours times ``factors`` (K,), of sum 1, as an array (m, K).

    Rows whose neighbours no label has reached get ``otherwise`` (K,).
    """
    rows = cast(DeviceRows, state.rows)
    with rows.computing(state.influence.shape[1]):
        means = mean_of_neighbours(rows, cast("Tensor", state.influence), found)
        values = means * torch.from_numpy(factors).to(means.device)
        totals = values.sum(dim=1, keepdim=True)
        uniform = torch.from_numpy(otherwise).to(means.device)
        return np.asarray(torch.where(totals > 0, values / totals, uniform).cpu().numpy())


def solution_on(
    state: GraphState, known: Indices, factors: Single, entered: Indices, targets: Targets
) -> tuple[Any, Any, int, float]:
    """Return what `propagation.solution_of` returns, with tensors."""
    rows = cast(DeviceRows, state.rows)
    influence, solution = cast("Tensor", state.influence), cast("Tensor", state.solution)
    with rows.computing(state.influence.shape[1]):
        if not known.size:
            return torch.zeros_like(solution), torch.zeros_like(influence), 0, 0.0
        device, n = solution.device, rows.size
        columns = rows.indices(known)
        weights = weights_of(rows.keys, rows.n_neighbors)
        slots = slots_of(rows.keys[:, : rows.n_neighbors]).clamp_(min=0)
        edges, ones = symmetric(slots, weights), torch.ones((n, 1), device=device)
        degrees = 0.5 * edges.times(ones)
        roots = torch.where(degrees == 0, ones, degrees).sqrt_().reciprocal_()
        start = solution[:, columns] * torch.from_numpy(factors).to(device)
        if entered.size:
            new = rows.indices(entered)
            near = DeviceLists(rows.keys[new], rows.horizons[new])
            start[new] = mean_of_neighbours(rows, influence, near)[:, columns] / roots[new]
        labeled = rows.indices(targets.rows)
        labels = torch.from_numpy(targets.values).to(device)
        target = torch.zeros((n, known.size), device=device)
        target[labeled, rows.indices(targets.columns)] = labels * roots[labeled, 0]
        if bool((start != 0).any()):
            start *= linked_to_labels(slots, weights, labeled)[:, None]
        scaled = -0.5 * state.alpha * roots[edges.rows, 0] * edges.weights * roots[edges.columns, 0]
        edges = edges._replace(weights=scaled)
        found, n_iter, residual = solve_on(edges, target, start)
        result = torch.zeros_like(solution)
        result[:, columns] = found
        return result, (result * roots).clamp_(min=0.0), n_iter, residual


def linked_to_labels(slots: Tensor, weights: Tensor, labeled: Tensor) -> Tensor:
    """Return a mask (n,) of the rows that have a path to one of the labeled rows."""
    n = slots.shape[0]
    used = weights != 0
    own = torch.arange(n, device=slots.device)[:, None]
    neighbours = torch.where(used, slots, own)
    reached = torch.zeros(n, dtype=torch.bool, device=slots.device)
    reached[labeled] = True
    before, frontier = torch.zeros_like(reached), reached
    for _ in range(STEPS_TO_LABELS):
        after = reached.clone()
        after[neighbours[frontier].reshape(-1)] = True
        after |= reached[neighbours].any(dim=1)
        before, reached = reached, after
        frontier = reached & ~before
        if not bool(frontier.any()):
            return reached
    rows = np.zeros(n, dtype=bool)
    rows[labeled.cpu().numpy()] = True
    lists = slots.to(torch.int32).cpu().numpy(), weights.cpu().numpy()
    return torch.from_numpy(connected_rows(*lists, rows)).to(slots.device)


def solve_on(edges: Edges, target: Tensor, values: Tensor) -> tuple[Tensor, int, float]:
    """Solve ``(I + A + A') values = target``, all (n, K), with the criteria of the CPU.

    ``values`` is the starting point. Returns the values, the number of steps, and the largest
    relative residual of a column.
    """
    residual = target - (values + edges.times(values))
    direction, steps = residual.clone(), 0
    values = values.clone()
    square, size = residual.square().sum(dim=0), target.square().sum(dim=0)
    goal = TOLERANCE * TOLERANCE * size
    while steps < LARGEST_NUMBER_OF_STEPS:
        if bool((square <= goal).all()) and few_unsolved_on(values, residual):
            solved = solve_rows_on(edges, values, residual)
            square = residual.square().sum(dim=0)
            if solved and bool((square <= goal).all()):
                break
            direction = residual.clone()
        image = direction + edges.times(direction)
        step = quotients_on(square, (direction * image).sum(dim=0))
        values += step * direction
        residual -= step * image
        new = residual.square().sum(dim=0)
        direction = residual + quotients_on(new, square) * direction
        square = new
        steps += 1
    return values, steps, float(quotients_on(square, size).amax().sqrt())


def quotients_on(numerators: Tensor, denominators: Tensor) -> Tensor:
    """Return the quotients (K,), 0 for a denominator that is not positive."""
    return torch.where(denominators > 0, numerators / denominators, 0.0)


def unsolved(values: Tensor, residual: Tensor) -> Tensor:
    """Return a mask (n,) of the rows whose residual is larger than a share of their values."""
    limits = float(ROW_TOLERANCE) * values.abs().sum(dim=1) + float(SMALLEST_RESIDUAL)
    return residual.abs().amax(dim=1) > limits


def few_unsolved_on(values: Tensor, residual: Tensor) -> bool:
    """Whether at most `LAST_SHARE` of the rows are not solved."""
    return bool(unsolved(values, residual).sum() <= LAST_SHARE * values.shape[0])


def solve_rows_on(edges: Edges, values: Tensor, residual: Tensor) -> bool:
    """Solve rows that are not solved by sweeps of Jacobi's method, in place; whether all are."""
    for _ in range(SWEEPS):
        moved = unsolved(values, residual)
        if not bool(moved.any()):
            return True
        change = torch.where(moved[:, None], residual, 0.0)
        values += change
        residual[moved] = 0.0
        residual -= edges.times(change)
    return False


def moved_classes(values: Tensor, places: Indices, n_classes: int) -> Tensor:
    """Return values (n, K) with class c moved to ``places[c]``; see `seqmed.classes.moved`."""
    result = values.new_zeros((values.shape[0], n_classes))
    kept = np.flatnonzero(places >= 0)
    before = torch.from_numpy(kept).to(values.device)
    result[:, torch.from_numpy(places[kept]).to(values.device)] = values[:, before]
    return result


def grown_rows(values: Tensor, n: int) -> Tensor:
    """Return a copy of (m, K) values with n rows of zeros added."""
    return torch.cat([values, values.new_zeros((n, values.shape[1]))])


# -- kernel values ---------------------------------------------------------------------------------


def kernel_sums(name: str, kernel: Kernel, points: Points, expansion: Expansion) -> Array | None:
    """Return the values of an expansion of the margin expert at many rows, (n, machines).

    They are computed in double precision. None if the CPU has to: for few values, sparse rows,
    other kernels, and rows so far from the centre that distances from products lose digits.
    """
    others, coefficients = expansion
    n, m = points.shape[0], others.shape[0]
    known = type(kernel) in (RBF, Linear, Polynomial)
    device = find_device(name)
    if n * m < MANY_VALUES or not known or sp.issparse(points):
        return None
    gamma, centre = float(getattr(kernel, "gamma", 0.0)), getattr(kernel, "centre", None)
    with device_memory(name, m, points.shape[1], coefficients.shape[1]):
        right, values = torch.from_numpy(others).to(device), torch.from_numpy(coefficients)
        values = values.to(device)
        if isinstance(kernel, RBF):
            shift = torch.zeros(1) if centre is None else torch.from_numpy(centre)
            shift = shift.to(device)
            right = right - shift
            lengths = gamma * right.square().sum(dim=1)
        found, farthest = np.empty((n, coefficients.shape[1])), 0.0
        size = max(1, PRODUCTS // 8 // max(1, m, points.shape[1]))
        for start in range(0, n, size):
            part = np.ascontiguousarray(points[start : start + size])
            left = torch.from_numpy(part).to(device)
            if isinstance(kernel, RBF):
                left = left - shift
                own = gamma * left.square().sum(dim=1)
                farthest = max(farthest, float(own.max()), float(lengths.max()))
                block = (2.0 * gamma * left) @ right.T
                block.sub_(own[:, None]).sub_(lengths).clamp_(max=0.0).exp_()
            else:
                block = left @ right.T
                if isinstance(kernel, Polynomial):
                    block.mul_(gamma).add_(kernel.coef0).pow_(kernel.degree)
            found[start : start + size] = (block @ values).cpu().numpy()
    return found if farthest <= FAR_FROM_CENTRE else None
