"""The inputs of a tree: the generated streams of its sources, in the batches in which they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from lmerge.core.elements import Adjust, Element, Insert, Stable
from lmerge.temporal.changes import Change
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.runs.settings import Item
from lmerge.testing.streams.batches import InputBatch, batched
from lmerge.testing.streams.facets import Facets
from lmerge.testing.streams.generator import generate
from lmerge.testing.transforming.concrete import ConcreteTree


@dataclass(frozen=True)
class TreeInputs:
    """The batches of the sources, in the order in which they come."""

    batches: Sequence[InputBatch]

    def elements(self, name: str) -> list[Element]:
        """Return the elements of a source."""
        return [element for batch in self.batches if batch.name == name for element in batch.elements]


def inputs_of(tree: ConcreteTree) -> TreeInputs:
    """Return the inputs of a tree: equal trees, equal inputs. Raises UsageError for facets that contradict."""
    streams = {}
    facets = Facets()
    for name, node in tree.sources.items():
        data = tree.data[name]
        facets = Facets.from_json(data.facets)
        streams[name] = generate(facets, node.columns, data.seed).elements
    random = Random(f"batches {tree.seed} {tree.row}")
    return TreeInputs(batched(random, streams, facets.interleaving, facets.batching))


def items_of(elements: Sequence[Element], forms: RowForms) -> list[Item]:
    """Return elements as a run takes them, with their payloads decoded."""
    found: list[Item] = []
    for element in elements:
        if isinstance(element, Insert):
            row = forms.of_payload(element.payload)
            found.append(Change(row, element.vs, element.vs, element.ve))
        elif isinstance(element, Adjust):
            row = forms.of_payload(element.payload)
            found.append(Change(row, element.vs, element.vold, element.ve))
        else:
            found.append(element.vc)
    return found


def forms_of(sources: Mapping[str, SourceNode]) -> dict[str, RowForms]:
    """Return what decodes the payloads of each source."""
    return {name: RowForms(node.columns) for name, node in sources.items()}


def times_of(element: Element) -> tuple[int, ...]:
    """Return the times of an element."""
    if isinstance(element, Insert):
        return element.vs, element.ve
    if isinstance(element, Adjust):
        return element.vs, element.vold, element.ve
    return (element.vc,)


def moved(inputs: TreeInputs, times: Mapping[int, int]) -> TreeInputs:
    """Return inputs with other times; the infinities stay."""

    def at(t: int) -> int:
        return times.get(t, t)

    def other(element: Element) -> Element:
        if isinstance(element, Insert):
            return Insert(element.payload, at(element.vs), at(element.ve))
        if isinstance(element, Adjust):
            return Adjust(element.payload, at(element.vs), at(element.vold), at(element.ve))
        return Stable(at(element.vc))

    return TreeInputs([InputBatch(batch.name, list(map(other, batch.elements))) for batch in inputs.batches])
