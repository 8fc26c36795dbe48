"""The properties of instructions that must arrive along the links of a pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from hlo_lint.analysis.callees import configuration
from hlo_lint.analysis.device_groups import pairs_in, transfer_pairs
from hlo_lint.analysis.pass_pairs import bare_type
from hlo_lint.analysis.step_map.links import Link, LinkKind
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import COMMUNICATES, RUNS_SCHEDULE, TUPLES
from hlo_lint.hlo.shape import ArrayShape, arrays
from hlo_lint.text.patterns import late

PLACES: Final = ("_xla_compute_type", "_xla_stream_annotation")
"""Frontend attributes that say where an instruction runs."""
GROUP: Final = "_scheduling_group_id"
"""The frontend attribute of instructions that are scheduled together."""
_MANUAL: Final = "manual}"
"""The mark of a sharding with manual devices: the program itself handles them."""
_HERE: Final = frozenset({LinkKind.KEPT, LinkKind.RENAMED, LinkKind.CLONED})
"""Links to the same operation in the same computation."""
_KEPT: Final = frozenset({LinkKind.KEPT})
_CONVERTED: Final = _HERE | {LinkKind.CONVERTED}
_ANYWHERE: Final = frozenset(LinkKind) - {LinkKind.MERGED}
_UNCONVERTED: Final = frozenset(LinkKind) - {LinkKind.CONVERTED}
_PRODUCTS: Final = frozenset({"convolution", "custom-call", "dot"})
_ROUNDED: Final = frozenset({"f32", "f64", "c64", "c128"})
"""Element types that the default precision may round."""
# XLA:TPU computes in dot_bf16_bf16_f32 by default.
_DEFAULT: Final = frozenset(
    {"default", "none", "alg_unset", "dot_any_f8_any_f8_f32", "dot_bf16_bf16_f32"}
)
"""Precisions and algorithms without a request."""
_REDUCES: Final = frozenset({"convolution", "dot", "reduce", "reduce-window", "scatter"})
"""Opcodes whose result may be left unreduced."""
HANDS_ON: Final = TUPLES | {"bitcast", "copy", "reshape"}
"""Opcodes whose operand may have the property instead."""
RUNS: Final = RUNS_SCHEDULE | {"fusion"}
"""Opcodes whose computations may have the property instead."""
_SAYS_WHO_MADE: Final = frozenset({"is_spmd_generated"})
"""Frontend attributes that name the pass that made an instruction; other passes may drop them."""
_VALIDATION: Final = "_xla_send_recv_validation"
"""The frontend attribute with numbers of iterations, some of which a pass may peel off."""
_find_places = late(
    r'"(force_earliest_schedule|operation_queue_id|wait_on_operation_queues)":\s*'
    r"(?:true|\"?[1-9]|\[\"?[0-9])"
).findall
"""The fields of XLA:GPU's configurations that say where and when an instruction runs."""
_find_choices = late(
    r'"(fmha_scale|dropout_rate|mask_type|seed|sliding_window_length|epsilon)":("[^"]*"|[^,}]*)'
).findall
"""The fields of XLA:GPU's configurations of attention and norms that choose the value."""
_without_calls = late(r'(?<=")[^"]*/').sub
_find_words = late(r"\w+").findall
_find_tiles = late(r'"kind":\s*"__triton".*"(block_level_fusion_config)"').findall

Held = Mapping[str, str]
"""The parts of a property that an instruction holds, with their values, if those count."""


def is_same_operation(link: Link) -> bool:
    """True if the value stayed, or name, type and operands."""
    old, new = link.old, link.new
    return link.is_equal or (old.name, old.type_text, old.operand_names) == (
        new.name,
        new.type_text,
        new.operand_names,
    )


class Property(NamedTuple):
    """A property of instructions, and how it travels."""

    word: str
    """A word in the type or the attributes of every instruction that has it."""
    held: Callable[[Instruction], Held]
    over: frozenset[LinkKind]
    """The links along which each part must arrive: the instruction or its parts hold it."""
    is_of_name: bool = True
    """True if passes that make the instructions for each device may drop it."""
    is_of_call: bool = False
    """True if it belongs to the interface of a custom call: passes that translate annotations keep
    it, too."""
    fits: Callable[[Link], bool] = lambda _: True
    """False for links along which it need not arrive."""
    is_same: Callable[[Link], bool] = is_same_operation
    """True for links along which its value must stay."""
    is_divided: bool = False
    """True if each of several clones may hold some of the parts."""
    thing: str = "annotations"
    """The word in `transitions.toml` for passes that may drop it."""

    def lost(self, link: Link) -> list[str]:
        """The parts that an instruction held, and that its successor lacks or changed."""
        old = link.old
        if link.kind not in self.over or self.word not in old.attributes_text + old.type_text:
            return []
        ours = self.held(old)
        if not ours or not self.fits(link):
            return []
        theirs: dict[str, str] = {}
        for part in reversed(link.parts):
            theirs |= self.held(part)
        may_lack = self.is_divided and link.kind == LinkKind.CLONED
        lost = [] if may_lack else [name for name in ours if name not in theirs]
        if self.is_same(link):
            changed = [name for name in ours if ours[name] != theirs.get(name, ours[name])]
            lost += [f"{name}'s value" for name in changed]
        return lost


def _is_one_operation(link: Link) -> bool:
    """True unless the link is to a combined collective."""
    return len(link.old.operand_names) == len(link.new.operand_names)


def _shows_config(link: Link) -> bool:
    """True if the configuration would be seen: that of a start is about the start."""
    opcode = link.old.opcode
    if link.kind != LinkKind.CONVERTED or opcode in {part.opcode for part in link.parts}:
        return True
    return opcode in COMMUNICATES and not opcode.endswith("-start") and _is_one_operation(link)


def _has_exchange(link: Link) -> bool:
    if link.kind == LinkKind.REPLACED:
        return any(part.opcode in COMMUNICATES for part in link.parts)
    return _is_one_operation(link)


def _is_rewritten(link: Link) -> bool:
    """True if the replacement contains the operation."""
    return link.kind != LinkKind.REPLACED or link.old.opcode in {part.opcode for part in link.parts}


def _has_its_opcode(link: Link) -> bool:
    return link.kind != LinkKind.REPLACED or link.new.opcode == link.old.opcode


def _may_be_unstable(link: Link) -> bool:
    # In a sort of a single array, equal elements are indistinguishable.
    return len(link.new.operand_names) > 1


def _is_product(link: Link) -> bool:
    """True unless a replacement has no product of factors that the default precision may round."""
    return link.kind not in (LinkKind.REPLACED, LinkKind.MERGED) or any(
        _ROUNDED.issuperset(array.dtype for array in arrays(operand.shape))
        for part in link.parts
        if part.opcode in _PRODUCTS
        for operand in part.operands[:2]
    )


def _is_no_tuple(link: Link) -> bool:
    # A tuple that was taken apart has no successor.
    return link.old.opcode not in (HANDS_ON if link.kind == LinkKind.REPLACED else TUPLES)


def _still(word: str) -> Callable[[Link], bool]:
    """True for links to instructions whose attributes have a word."""
    return lambda link: any(word in part.attributes_text for part in link.parts)


def _keeps_iterations(link: Link) -> bool:
    """True for links along which each pair of devices keeps its valid iterations."""
    # Unrolling and peeling clone a permute with all its pairs, and its iterations change;
    # collective-permute-cycle-decomposer gives each clone some of the pairs.
    is_whole = set(transfer_pairs(link.new)).issuperset(transfer_pairs(link.old))
    return _still(_VALIDATION)(link) and not (link.kind == LinkKind.CLONED and is_whole)


def _is_in_place(link: Link) -> bool:
    """True for the same operation on the same operands."""
    old, new = link.old, link.new
    is_alike = (old.opcode, bare_type(old.type_text)) == (new.opcode, bare_type(new.type_text))
    return is_alike and (link.is_equal or old.operand_names == new.operand_names)


def _has_name_and_type(link: Link) -> bool:
    return (link.old.name, link.old.type_text) == (link.new.name, link.new.type_text)


def _keeps_sharding(link: Link) -> bool:
    if link.kind == LinkKind.REPLACED:
        return not (link.old.is_root or link.new.opcode in HANDS_ON)
    if bare_type(link.old.type_text) != bare_type(link.new.type_text):
        return False
    # Bitcasts and fusions are created after the partitioner, which consumed the shardings.
    bodies = {part.computation for part in (link.old, *link.parts)}
    return all({"bitcast", "fusion"}.isdisjoint(body.opcodes) for body in bodies)


def _attribute(name: str, instruction: Instruction, *, has_value: bool = False) -> Held:
    text = instruction.attribute_text(name)
    return {} if text is None else {name: text if has_value else ""}


def _is_algorithm(link: Link) -> bool:
    """True unless the replacement computes with the factors of the algorithm."""
    algorithm = link.old.attribute_text("algorithm") or ""
    factor = algorithm.removeprefix("dot_").partition("_")[0]
    is_expanded = any(part.type_text.startswith(f"{factor}[") for part in link.parts)
    return link.kind != LinkKind.REPLACED or not is_expanded


def _is_same_kernel(link: Link) -> bool:
    """True for a custom call of as many operands; any other may need no alias."""
    ours, theirs = link.old, link.new
    return (
        ours.opcode == "custom-call"
        and (ours.shape_or_none, len(ours.operand_names))
        == (theirs.shape_or_none, len(theirs.operand_names))
        and ours.attributes.get("backend_config") == theirs.attributes.get("backend_config")
    )


def _requested(name: str, product: Instruction) -> Held:
    """The precision or the algorithm that a product requests."""
    text: object = product.attributes.get(name, "")
    # A call of cuDNN has the attributes of the convolution; one of cuBLAS has them in its config.
    if product.opcode == "custom-call" and not product.custom_call_target.startswith(
        "__cudnn$conv"
    ):
        text = configuration(product.attribute_text("backend_config") or "").get(name)
    words = dict.fromkeys(_find_words(str(text or "").lower()))
    asked = ", ".join(word for word in words if word not in _DEFAULT)
    return {name: asked} if asked else {}


def _origin(instruction: Instruction) -> Held:
    text = instruction.attribute_text("origin")
    # An instruction that is hoisted or inlined has the calls before its name: "while.5#*/c.1".
    return {} if text is None else {"origin": _without_calls("", text)}


def _frontend(instruction: Instruction) -> Held:
    attributes = instruction.frontend_attributes()
    return {
        f"the frontend attribute {name}": "" if name == _VALIDATION else str(value)
        for name, value in attributes.items()
        if name not in _SAYS_WHO_MADE
    }


def _iterations(transfer: Instruction) -> Held:
    """The valid iterations of each pair of devices."""
    ranges = pairs_in(transfer.frontend_attributes().get(_VALIDATION))
    pairs = zip(transfer_pairs(transfer), ranges, strict=False)
    return {
        f"{_VALIDATION} of {{{source},{target}}}": str(valid) for (source, target), valid in pairs
    }


def _fields(find: Callable[[str], list[str]], instruction: Instruction) -> Held:
    return {f"{name} of the backend_config": "" for name in find(instruction.attributes_text)}


def _induction(instruction: Instruction) -> Held:
    name = "known_induction_variable"
    return {f"{name} of the loop": ""} if name in instruction.backend_config() else {}


def _space(instruction: Instruction) -> Held:
    shape = instruction.shape_or_none
    has_space = isinstance(shape, ArrayShape) and bool(shape.memory_space)
    return {"the memory space": ""} if has_space else {}


def _unreduced(instruction: Instruction) -> Held:
    """The reduction under a call that marks it as unreduced."""
    source = instruction.producer() if instruction.opcode == "custom-call" else None
    is_sum = source is not None and source.opcode in _REDUCES
    return {"the reduction under its unreduced sharding": ""} if is_sum else {}


def _manual(instruction: Instruction) -> Held:
    is_manual = _MANUAL in (instruction.attribute_text("sharding") or "")
    return {"the manual devices of the sharding": ""} if is_manual else {}


def _row(
    name: str,
    over: frozenset[LinkKind] = _HERE,
    *,
    has_value: bool = False,
    is_of_call: bool = False,
    fits: Callable[[Link], bool] = lambda _: True,
) -> Property:
    """An attribute as it is spelled."""
    held = partial(_attribute, name, has_value=has_value)
    return Property(f"{name}=", held, over, is_of_call=is_of_call, fits=fits)


def _config(held: Callable[[Instruction], Held], word: str = "backend_config=") -> Property:
    """Fields of a configuration that remains."""
    over = _KEPT | {LinkKind.MOVED}
    return Property("backend_config=", held, over, is_of_name=False, fits=_still(word))


PROPERTIES: Final = (
    Property("frontend_attributes=", _frontend, _ANYWHERE, is_of_name=False, fits=_is_no_tuple),
    Property("algorithm", partial(_requested, "algorithm"), _UNCONVERTED, fits=_is_algorithm),
    Property(
        "operand_precision",
        partial(_requested, "operand_precision"),
        _UNCONVERTED,
        fits=_is_product,
    ),
    Property(
        "known_induction_variable",
        _induction,
        _KEPT,
        is_of_name=False,
        fits=_still("known_trip_count"),
    ),
    Property(
        _VALIDATION,
        _iterations,
        frozenset({LinkKind.CLONED, LinkKind.CONVERTED, LinkKind.REPLACED}),
        fits=_keeps_iterations,
        is_same=lambda _: True,
        is_divided=True,
    ),
    _row("api_version", has_value=True, is_of_call=True),
    _row("async_execution_thread", has_value=True),
    _row("backend_config", _CONVERTED, is_of_call=True, fits=_shows_config),
    _config(partial(_fields, _find_places)),
    _config(lambda instruction: dict(_find_choices(instruction.attributes_text))),
    _config(partial(_fields, _find_tiles), '"__triton"'),
    _row("channel_id", _CONVERTED | {LinkKind.REPLACED}, is_of_call=True, fits=_has_exchange),
    _row("constrain_layout"),
    _row("cross_program_prefetch_index", has_value=True),
    _row("custom_call_has_side_effect", is_of_call=True),
    _row("infeed_config", has_value=True),
    _row("is_composite"),
    _row("is_host_transfer"),
    _row("is_stable", _HERE | {LinkKind.MERGED, LinkKind.REPLACED}, fits=_may_be_unstable),
    _row("operand_layout_constraints"),
    Property(
        "origin=",
        _origin,
        _HERE | {LinkKind.MOVED, LinkKind.REPLACED},
        is_of_name=False,
        fits=_has_its_opcode,
    ),
    _row("outfeed_config", has_value=True),
    _row("padding_type"),
    _row("output_to_operand_aliasing", _KEPT, has_value=True, fits=_is_same_kernel),
    _row("parameter_replication"),
    _row("result_accuracy", _UNCONVERTED - {LinkKind.MOVED}, has_value=True, fits=_is_rewritten),
    _row("schedule", has_value=True),
    _row("statistics", _HERE | {LinkKind.MOVED}),
    _row("use_global_device_ids", _CONVERTED, fits=_has_exchange),
    _row(
        "sharding",
        _HERE | {LinkKind.MOVED, LinkKind.REPLACED},
        has_value=True,
        fits=_keeps_sharding,
    )._replace(is_same=_has_name_and_type),
    Property("sharding=", _manual, _HERE | {LinkKind.MOVED}, fits=_still("sharding=")),
    Property(":S(", _space, _HERE | {LinkKind.MOVED}, fits=_is_in_place, thing="placement"),
    Property("unreduced={", _unreduced, _KEPT, fits=_still("unreduced={")),
)
