"""Text that one release of jaxlib prints, spelled so that another one reads it."""

from __future__ import annotations

import re
from typing import Final

from hlo_lint.hlo.attributes import split_attributes
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.dialects.text_editor import (
    Statement,
    TextEditor,
    drop_attributes,
    referenced_type,
    statements,
)
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.opcodes import wrapped_opcode
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    name_of,
    opcode_of,
    references_of,
    type_of,
)

NEW_IN_0_11: Final = {
    "async-update": {"output_to_operand_aliasing"},
    "collective-broadcast": {"has_dynamic_root"},
    "compare": {"order"},
    "convolution": {"algorithm", "block_scaling_config"},
    "topk": {"is_stable"},
}
"""Attributes that jaxlib 0.11.2 reads and 0.10.2 refuses, by opcode; found by asking both."""
ATTRIBUTES_OF_0_10: Final = frozenset(
    """
    algorithm api_version async_execution_thread backend_config batch_group_count body
    branch_computations called_computations calls channel_id collapsed_slice_dims condition
    constrain_layout control-predecessors convolution_kind cross_program_prefetch_index
    custom_call_has_side_effect custom_call_target delta dim_labels dimensions direction
    distribution domain dynamic_slice_sizes epsilon exponent_bits false_computation
    feature_group_count feature_index fft_length fft_type frontend_attributes index
    index_vector_dim indices_are_sorted infeed_config inferred_dimension input_batching_dims
    inserted_window_dims iota_dimension is_associative is_composite is_host_transfer
    is_reverse is_stable k kind largest left_side lhs_batch_dims lhs_contracting_dims
    lhs_ragged_dims literal lower mantissa_bits metadata mode num_carries offset_dims
    operand_batching_dims operand_layout_constraints operand_precision origin outfeed_config
    outfeed_shape output_to_operand_aliasing padding padding_type parameter_replication
    replica_groups result_accuracy rhs_batch_dims rhs_contracting_dims rhs_group_dims scatter
    scatter_dims_to_operand_dims scatter_indices_batching_dims schedule select sharding slice
    slice_sizes source_target_pairs sparsity_config start_index_map start_indices_batching_dims
    statistics to_apply transpose_a true_computation type unique_indices unit_diagonal
    update_window_dims use_global_device_ids window
    """.split()
)
"""All that jaxlib 0.10.2 reads of an instruction, by its own word; it refuses any other."""
HEADER_ATTRIBUTES_OF_0_10: Final = frozenset(
    """
    alias_passthrough_params allow_spmd_sharding_propagation_to_output
    allow_spmd_sharding_propagation_to_parameters buffer_donor entry_computation_layout
    frontend_attributes input_output_alias is_scheduled num_partitions origin_recovery_table
    replica_count
    """.split()
)
"""All that jaxlib 0.10.2 reads of a module's header."""
OPCODES_NEW_IN_0_11: Final = frozenset({"collective-reduce"})
OPCODES_NEW_IN_0_10_2: Final = frozenset({"mulhi"})
_new_type = re.compile(r"\bf6e(?:2m3|3m2)fn\[").search
_integers = re.compile(r"(?:pred|[su]\d+)\[").match
_names_in = re.compile(r"(?:\A|,)\s*([A-Za-z_][\w.\-]*)\s*=").findall
_find_name = re.compile(r"%?([^\s,{}%]+)").finditer
_payload = re.compile(r'\s*\bmetadata_payload=(?:"(?:[^"\\]|\\.)*+"|\{[^{}]*\}|[^\s{}]+)')


def readable_by_0_10_2(module: Module, editor: TextEditor) -> None:
    """Respell or leave out what jaxlib 0.10.2 refuses; tuples' elements are explicit already."""
    _drop_from_header(module, editor)
    for computation, instructions in statements(module):
        for row in computation.rows:
            _note_unknown(row, editor, OPCODES_NEW_IN_0_11, "0.10.2")
            if opcode_of(row).endswith(("-update", "-done")):
                _note_asynchronous(row, computation, editor)
        for statement in instructions.where(_may_say_more):
            new = _unknown_attributes(statement)
            if "order" in new:
                _order_as_type(statement, computation, editor)
                new = new - {"order"}
            for name in sorted(new):
                editor.note(
                    f"{name} of {opcode_of(statement.record)}: jaxlib 0.10 does not know it"
                )
            if new:
                drop_attributes(editor, statement, new)
    drop_undefined_predecessors(module, editor)


def _may_say_more(row: InstructionRecord) -> bool:
    """True if something that looks like an attribute is new."""
    return opcode_of(row) in NEW_IN_0_11 or not ATTRIBUTES_OF_0_10.issuperset(
        _names_in(attributes_of(row))
    )


def _unknown_attributes(statement: Statement) -> set[str]:
    names = statement.values().keys() - {""}
    return names - ATTRIBUTES_OF_0_10 | names & NEW_IN_0_11.get(opcode_of(statement.record), set())


def drop_undefined_predecessors(module: Module, editor: TextEditor) -> None:
    """Take out control predecessors that nothing defines, for which XLA refuses a text."""
    for computation, instructions in statements(module):
        if computation.mentions("control-predecessors="):
            for statement in instructions.mentioning("control-predecessors="):
                _drop_undefined(statement, computation, editor)


def readable_by_0_10_0(module: Module, editor: TextEditor) -> None:
    """Leave out or note what jaxlib 0.10.0 refuses beyond that."""
    for computation, instructions in statements(module):
        for row in computation.rows:
            _note_unknown(row, editor, OPCODES_NEW_IN_0_10_2, "0.10.0")
        for statement in instructions.mentioning("metadata_payload="):
            place = statement.values().get("metadata")
            payload = _payload.search(editor.text, *place) if place else None
            if payload:
                editor.replace(payload.start(), payload.end(), "")
                editor.note("metadata_payload: jaxlib 0.10.0 does not know it")


def _note_unknown(
    row: InstructionRecord, editor: TextEditor, opcodes: frozenset[str], release: str
) -> None:
    opcode = opcode_of(row)
    if opcode in opcodes:
        editor.note(f"{opcode} stays: jaxlib {release} has no such opcode and refuses the text")
    if release == "0.10.2" and _new_type(type_of(row)):
        editor.note("6-bit floats stay: jaxlib 0.10 has no such type and refuses the text")


def _note_asynchronous(
    row: InstructionRecord, computation: Computation, editor: TextEditor
) -> None:
    """Note an update or a done that reads anything but one start, or one update."""
    if opcode_of(row) not in ("async-update", "async-done") and not wrapped_opcode(opcode_of(row)):
        return
    references = references_of(row)
    number = computation.index.get(references[0]) if references else None
    read = "" if number is None else opcode_of(computation.rows[number])
    if len(references) != 1 or not read.endswith(("-start", "-update")):
        editor.note(f"%{name_of(row)} stays: jaxlib 0.10 expects a single async op as its operand")


def _order_as_type(statement: Statement, computation: Computation, editor: TextEditor) -> None:
    """`order=TOTAL` as `type=TOTALORDER`.

    Integers have a total order anyway, and floats a partial one: there nothing is said.
    """
    start, end = statement.values()["order"]
    order = editor.text[start:end]
    references = references_of(statement.record)
    shape = referenced_type(computation, references[0]) if references else None
    orders_integers = shape is not None and _integers(shape) is not None
    if orders_integers == (order == "TOTAL"):
        drop_attributes(editor, statement, {"order"})
        return
    name_start = editor.text.rindex("order", statement.start, start)
    editor.replace(name_start, end, "type=TOTALORDER" if order == "TOTAL" else "type=FLOAT")


def _drop_undefined(statement: Statement, computation: Computation, editor: TextEditor) -> None:
    names = control_predecessors(attributes_of(statement.record))
    defined = [name for name in names if name in computation.index]
    place = statement.values().get("control-predecessors")
    if place is None or len(defined) == len(names):
        return
    for name in names:
        if name not in defined:
            editor.note(f"control predecessor %{name}: the text does not define it")
    if not defined:
        drop_attributes(editor, statement, {"control-predecessors"})
        return
    spelled = _find_name(editor.text, *place)
    kept = [name[0] for name in spelled if name[1] in computation.index]
    editor.replace(*place, "{" + ", ".join(kept) + "}")


def _drop_from_header(module: Module, editor: TextEditor) -> None:
    start = module.header.find(",")
    if start < 0:
        return
    begin = editor.text.index(module.header)
    end = begin + start
    for name, (_, stop) in split_attributes(module.header[start:]).items():
        comma, end = end, begin + start + stop
        if name and name not in HEADER_ATTRIBUTES_OF_0_10:
            editor.replace(comma, end, "")
            editor.note(f"{name} of the module: jaxlib 0.10 does not know it")
