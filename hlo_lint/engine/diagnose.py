"""From a finding to its diagnostic: the place, the excerpt, the fix that reports show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_lint.engine.findings import Diagnostic, PassRef, SourceLine
from hlo_lint.engine.fingerprints import fingerprint, identity_of
from hlo_lint.engine.timeline import LocatedFinding
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.parser.tokens import InstructionSpans
from hlo_lint.rules.checks import call_fix
from hlo_lint.rules.findings import Finding
from hlo_lint.text.edits import Fix, Region
from hlo_lint.text.source import Span

if TYPE_CHECKING:
    from hlo_lint.hlo.attributes.metadata import OpMetadata

NOT_EDITED = (
    "no fix without --before: layout-assignment may still run, and it refuses the bitcast that the "
    "fix adds"
)


def diagnose(
    place: LocatedFinding,
    introduced: PassRef | None = None,
    *,
    resolved: PassRef | None = None,
    seen_in: int | None = None,
) -> Diagnostic:
    """The finding as a report shows it: place, excerpt, Python line, fix."""
    finding, name = place.finding, place.dump.name
    file = place.dump.file
    lines = file.lines
    instruction = finding.at if isinstance(finding.at, Instruction) else None
    if isinstance(finding.at, Instruction):
        module = place.module or file.modules[0]
        span = module.span(finding.at)
    else:
        module, span = place.module or file.module_at(finding.at.start), finding.at
    caret = _caret(span, finding, lines.text)
    metadata = None if instruction is None else _metadata(instruction)
    origin = origin_of(instruction, module)
    op_name = metadata.op_name if metadata else ""
    start, end = lines.position(caret.start), lines.position(caret.end)
    fix, notes = fix_of(place), finding.notes
    if fix is not None and not can_stand(fix, place):
        fix, notes = None, (*notes, NOT_EDITED)
    replaced = (edit.span for edit in fix.edits) if fix else ()
    stands_at = instruction, lines.part(span), op_name
    function = origin.function if origin else ""
    digits = fingerprint(place.rule.name(), identity_of(finding), module.name, *stands_at, function)
    return Diagnostic(
        rule=place.rule.name(),
        severity=finding.severity or place.rule.severity,
        message=finding.message,
        path=str(place.dump.path),
        start=start,
        end=end,
        module=module.name,
        computation=instruction.computation.name if instruction else None,
        instruction=instruction.name if instruction else None,
        pipeline=name.pipeline or None if name else None,
        step=name.step if name else None,
        introduced_by=introduced,
        origin=origin,
        notes=notes,
        fix=fix,
        resolved_by=resolved,
        seen_in=seen_in,
        excerpt=lines.line(start.line),
        regions=tuple(Region.of(stretch, lines) for stretch in (caret, *replaced)),
        op_name=op_name or None,
        fingerprint=digits,
    )


def can_stand(fix: Fix, place: LocatedFinding) -> bool:
    """True if a compiler that reads the fixed text accepts it."""
    return place.layouts_bind or not fix.adds_bitcast


def fix_of(place: LocatedFinding) -> Fix | None:
    """The sound fix of a finding, or None."""
    finding = place.finding
    if finding.fix is not None:
        return finding.fix
    if not finding.fixable or not isinstance(finding.at, Instruction) or place.module is None:
        return None
    if finding.at.is_nested:
        return None  # there is no separate line for new instructions
    return call_fix(place.rule, finding.at, place.module, place.stage)


def _caret(span: Span, finding: Finding, text: str) -> Span:
    """The span to underline: the instruction's name, or the operand or word of the finding."""
    if not isinstance(finding.at, Instruction):
        return span
    spans = InstructionSpans(text[span.start : span.end], finding.at.row)
    if finding.word:
        part = spans.word(finding.word) or spans.name
    elif finding.operand is None:
        part = spans.name
    else:
        operand = spans.operand_span(finding.operand)
        part = operand and Span(operand.start, operand.end)
    # A nested instruction has no name, and no span as an operand.
    return Span(span.start + part.start, span.start + part.end) if part else span


def origin_of(instruction: Instruction | None, module: Module) -> SourceLine | None:
    """The line of Python, by stack frame or by the fields that older releases print."""
    metadata = None if instruction is None else _metadata(instruction)
    if metadata is None:
        return None
    if metadata.stack_frame_id:
        for frame in module.stack_frames.frames(metadata.stack_frame_id):
            return SourceLine(frame.file, frame.line, frame.function)
    if metadata.source_file:
        return SourceLine(metadata.source_file, metadata.source_line or 0, "")
    return None


def _metadata(instruction: Instruction) -> OpMetadata | None:
    from hlo_lint.hlo.attributes.metadata import OpMetadata

    metadata = instruction.attribute_or_none("metadata")
    return metadata if isinstance(metadata, OpMetadata) else None
