"""The report as JUnit XML, which CI systems show as results of tests."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from hlo_lint.findings import Diagnostic, Severity
from hlo_lint.report.formats import Report, Warn
from hlo_lint.report.locations import relative_path
from hlo_lint.report.text import as_text, summary
from hlo_lint.source import shown


def render(report: Report, _: Warn) -> str:
    """A suite for each file with findings: an error or a warning is a failure, information passes.

    A last suite has what was skipped, and where nothing was found, that.
    """
    root = Element("testsuites", name="hlo-lint")
    by_path: dict[str, list[Diagnostic]] = {}
    for finding in report.findings:
        by_path.setdefault(finding.path, []).append(finding)
    for path, findings in by_path.items():
        suite = SubElement(root, "testsuite", name=shown(relative_path(path)))
        for finding in findings:
            _add_finding(suite, finding)
    if report.skipped or not report.findings:
        suite = SubElement(root, "testsuite", name="hlo-lint")
        if not report.findings:
            said = summary(report.findings, report.stats, len(report.allowed))
            SubElement(suite, "testcase", name=said, classname="hlo-lint")
        for entry in report.skipped:
            case = SubElement(suite, "testcase", name=shown(entry.path), classname="hlo-lint")
            SubElement(case, "skipped", message=shown(entry.reason))
    for suite in root:
        _count(suite, list(suite))
    _count(root, list(root.iter("testcase")))
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _add_finding(suite: Element, finding: Diagnostic) -> None:
    where = f"{finding.line}:{finding.column}"
    of = f" in %{finding.instruction}" if finding.instruction else ""
    case = SubElement(
        suite,
        "testcase",
        name=shown(f"{finding.rule}{of} at {where}"),
        classname=shown(finding.module) or "hlo-lint",
        file=shown(relative_path(finding.path)),
        line=str(finding.line),
    )
    if finding.severity is Severity.INFO:
        SubElement(case, "system-out").text = as_text(finding)
        return
    kind, message = f"{finding.severity.value}[{finding.rule}]", shown(finding.message)
    SubElement(case, "failure", type=kind, message=message).text = as_text(finding)


def _count(suite: Element, cases: list[Element]) -> None:
    suite.set("tests", str(len(cases)))
    for attribute, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("errors", "0")
