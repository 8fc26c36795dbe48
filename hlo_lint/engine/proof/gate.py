"""The gate for fixes of `fix --verify`, with the reasons of refusals.

A fix is safe only if it is minimal, the finding is gone, no rule has a new finding, XLA's parser
reads the text, and both texts compute the same values at the strongest level that applies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hlo_lint.analysis.grouping import by_key
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.file_types import FileType
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.engine.fixes import apply_fixes, finding_key, without_overlaps
from hlo_lint.engine.proof.prove import Proof, prove_ptx, strongest_proof
from hlo_lint.engine.reporter import PlannedFix
from hlo_lint.engine.runner import Checker, Task
from hlo_lint.hlo.ir import Module
from hlo_lint.text.edits import Safety
from hlo_lint.text.errors import DumpError
from hlo_lint.xla.cpu import XlaCpu
from hlo_lint.xla.parser import XlaParser, XlaRefusal

NOT_ASKED: Final = "XLA's parser was not asked: jaxlib is not installed"
Plans: TypeAlias = "dict[PassDump, list[PlannedFix]]"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of the gate on a fix."""

    plan: PlannedFix
    proof: Proof
    failures: tuple[str, ...]
    """The conditions that do not hold; empty if the fix passes."""
    notes: tuple[str, ...] = ()
    """Conditions that could not be checked."""

    @property
    def passes(self) -> bool:
        """True if every condition holds."""
        return not self.failures

    @property
    def safety(self) -> Safety:
        """The safety that the rule states, or unsafe if a condition does not hold."""
        return self.plan.fix.safety if self.passes else Safety.UNSAFE

    def __str__(self) -> str:
        finding = self.plan.diagnostic
        where = f"%{finding.instruction}" if finding.instruction else f"line {finding.line}"
        reason = "; ".join(self.failures) if self.failures else f"{self.proof}"
        state = "proven" if self.passes else "refused"
        notes = "".join(f" ({note})" for note in self.notes)
        return f"{state}: {finding.rule} at {where} of {self.plan.dump.path}: {reason}{notes}"


@dataclass(slots=True)
class Gate:
    """The conditions for fixes, and the verdicts so far."""

    task: Task
    """A task with every rule, as a fix may cause a finding of any rule."""
    xla: XlaCpu
    """XLA:CPU, which executes both modules where terms do not decide."""
    parser: XlaParser | None
    """XLA's parser, which reads each text; None to skip this condition."""
    admits_unproven: bool = False
    """True to let unproven fixes pass; a fix known to be wrong never passes."""
    verdicts: list[Verdict] = field(default_factory=list)
    _proofs: dict[Hashable, Proof] = field(default_factory=dict)
    _refused: set[Hashable] = field(default_factory=set)

    def admit(self, compilation: Compilation, plans: Plans) -> Plans:
        """The fixes that may be applied together; the verdict on each fix is kept."""
        todo = [
            plan
            for of_file in plans.values()
            for plan in chosen_plans(of_file)
            if _identity(plan) not in self._refused
        ]
        verdicts = {id(plan): self._alone(plan) for plan in todo}
        together = [plan for plan in todo if not verdicts[id(plan)].failures]
        for plan, reason in self._with_new_findings(compilation, together):
            verdicts[id(plan)] = _failing(verdicts[id(plan)], reason)
        together = [plan for plan in todo if not verdicts[id(plan)].failures]
        for plan, reason, note in _unread_by_xla(together, self.parser) if self.parser else ():
            verdicts[id(plan)] = _failing(verdicts[id(plan)], reason, note)
        admitted: Plans = {}
        for plan in todo:
            verdict = verdicts[id(plan)]
            self.verdicts.append(verdict)
            if verdict.passes or (self.admits_unproven and not verdict.proof.differs):
                admitted.setdefault(plan.dump, []).append(plan)
            else:
                self._refused.add(_identity(plan))
        return admitted

    def _alone(self, plan: PlannedFix) -> Verdict:
        """The verdict on a fix by itself."""
        before = plan.dump.file.text
        after = apply_fixes(before, [plan.fix])
        if after == before:
            return Verdict(plan, Proof(None, False, ("nothing changes",)), ("it changes nothing",))
        if plan.dump.file_type is not FileType.HLO:
            proof = prove_ptx(before, after)
            return Verdict(plan, proof, () if proof.holds else (f"{proof}",))
        old = plan.dump.file.modules
        new = plan.dump.reparsed(after).modules
        if len(old) != len(new):
            proof = Proof(None, False, ("the number of modules in the file changes",))
            return Verdict(plan, proof, (f"{proof}",))
        changed = [(a, b) for a, b in zip(old, new, strict=True) if a.text != b.text]
        failures = [reason for a, b in changed for reason in (_not_minimal(a, b),) if reason]
        failures += [f"an edit repeats the line {line!r}" for line in _repeated(before, plan)]
        proof = Proof(None, False, ())
        for a, b in changed:
            proof = self._proof(a, b)
            if not proof.holds:
                failures.append(f"{proof}")
                break
        return Verdict(plan, proof, tuple(failures))

    def _proof(self, before: Module, after: Module) -> Proof:
        """The proof about two modules, cached for dumps with the same change."""
        old = {body.name: body.text for body in before.computations}
        new = {body.name: body.text for body in after.computations}
        key = (
            before.header == after.header,
            tuple((name, text) for name, text in old.items() if new.get(name) != text),
            tuple((name, text) for name, text in new.items() if old.get(name) != text),
        )
        proof = self._proofs.get(key)
        if proof is None:
            proof = self._proofs[key] = strongest_proof(before, after, xla=self.xla)
        return proof

    def _with_new_findings(
        self, compilation: Compilation, plans: Sequence[PlannedFix]
    ) -> list[tuple[PlannedFix, str]]:
        """The fixes that cause or leave a finding, each with the first such finding."""
        refused: list[tuple[PlannedFix, str]] = []
        before = self._findings(compilation)[0] if plans else {}
        groups = [plans] if plans else []
        for group in groups:  # a group that causes a finding is halved, down to a single fix
            reason = self._new_after(compilation, group, before)
            if reason and len(group) == 1:
                refused.append((group[0], reason))
            elif reason:
                groups += [group[: len(group) // 2], group[len(group) // 2 :]]
        return refused

    def _new_after(
        self, compilation: Compilation, plans: Sequence[PlannedFix], before: Mapping[Hashable, str]
    ) -> str:
        """The first finding that some fixes cause or leave; the texts are restored."""
        states = {plan.dump: (plan.dump.file, plan.dump.edited) for plan in plans}
        for dump, (file, _) in states.items():
            dump.replace_text(apply_fixes(file.text, [p.fix for p in plans if p.dump is dump]))
        try:
            after, places = self._findings(compilation)
        finally:
            for dump, (file, edited) in states.items():
                dump.replace_file(file, edited=edited)
        for identity, message in after.items():
            if identity not in before:
                return f"a new finding: {message}"
        left = next((plan for plan in plans if _identity(plan) in places), None)
        return "" if left is None else f"not idempotent: {left.diagnostic.rule} is still found"

    def _findings(self, compilation: Compilation) -> tuple[dict[Hashable, str], set[Hashable]]:
        """The findings by `finding_key`, and their places in each file, repetitions included."""
        checker = Checker(self.task)
        checker.check_compilation(compilation)
        messages: dict[Hashable, str] = {}
        places = {_identity(plan) for plan in checker.reporter.fixes}
        for diagnostic in checker.result.diagnostics:
            messages[finding_key(diagnostic)] = f"{diagnostic.rule}: {diagnostic.message}"
            places.add((diagnostic.path, *finding_key(diagnostic)))
        return messages, places


def chosen_plans(plans: Iterable[PlannedFix]) -> list[PlannedFix]:
    """The plans whose fixes do not overlap; the others wait for the next round."""
    by_fix = {plan.fix: plan for plan in reversed(list(plans))}
    return [by_fix[fix] for fix in without_overlaps(by_fix)]


def _identity(plan: PlannedFix) -> Hashable:
    return (str(plan.dump.path), *finding_key(plan.diagnostic))


def _failing(verdict: Verdict, reason: str, note: str = "") -> Verdict:
    failures = (*verdict.failures, reason) if reason else verdict.failures
    notes = (*verdict.notes, note) if note else verdict.notes
    return Verdict(verdict.plan, verdict.proof, failures, notes)


# Conditions -------------------------------------------------------------------------------------


def _not_minimal(before: Module, after: Module) -> str:
    """The reason why a fix is not minimal: it adds an unread instruction. Empty otherwise."""
    old = {instruction.name for instruction in before.instructions()}
    for instruction in after.instructions():
        is_result = instruction is instruction.computation.root
        if instruction.name not in old and not is_result and not instruction.users:
            return f"not minimal: it adds %{instruction.name}, which is not read"
    return ""


def _repeated(text: str, plan: PlannedFix) -> list[str]:
    """The lines that an edit replaces by equal lines."""
    repeated = []
    for edit in plan.fix.edits:
        start, end = edit.span
        lines = {line.strip() for line in text[start:end].split("\n")}
        repeated += [line.strip() for line in edit.text.split("\n") if line.strip() in lines - {""}]
    return repeated


def _unread_by_xla(
    plans: Sequence[PlannedFix], parser: XlaParser
) -> Iterator[tuple[PlannedFix, str, str]]:
    """The fixes whose text XLA's parser refuses or cannot judge, with the reason or a note."""
    by_dump = by_key((plan.dump, plan) for plan in plans if plan.dump.file_type is FileType.HLO)
    for dump, of_dump in by_dump.items():

        def refusal(*fixes: PlannedFix, text: str = dump.file.text) -> XlaRefusal | None:
            return parser.refusal(apply_fixes(text, [plan.fix for plan in fixes]))

        try:
            before, after = refusal(), refusal(*of_dump)
        except DumpError:
            yield from ((plan, "", NOT_ASKED) for plan in of_dump)
            continue
        if before:
            note = f"XLA's parser refuses the text without the fix, too: {before}"
            yield from ((plan, "", note) for plan in of_dump)
        elif after:
            alone = [refusal(plan) for plan in of_dump]
            if not any(alone):  # the text is refused only with all fixes
                alone = [after] * len(of_dump)
            for plan, reason in zip(of_dump, alone, strict=True):
                if reason:
                    yield plan, f"XLA's parser refuses the text: {reason}", ""
