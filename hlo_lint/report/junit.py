"""Render the report as JUnit XML, which CI systems show as test results."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from hlo_lint.engine.findings import Diagnostic
from hlo_lint.report.formats import Warn
from hlo_lint.report.locations import relative_path
from hlo_lint.report.report import Report
from hlo_lint.report.text import as_text, summary
from hlo_lint.rules.findings import Severity
from hlo_lint.text.phrases import listed
from hlo_lint.text.source import shown


def render(report: Report, _: Warn) -> str:
    """A suite for each file with findings: errors and warnings are failures, information passes.

    Allowed findings are skipped tests. A last suite has the skipped inputs, and a passed test if
    there are no findings.
    """
    root = Element("testsuites", name="hlo-lint")
    suites: dict[str, Element] = {}
    for finding in report.findings:
        _add_finding(_case(root, suites, finding), finding)
    for allowed in report.allowed:
        message = f"allowed by {allowed.by.value}: {shown(allowed.reason) or 'no reason given'}"
        SubElement(_case(root, suites, allowed.finding), "skipped", message=message)
    if report.skipped or not report.findings:
        suite = SubElement(root, "testsuite", name="hlo-lint")
        if not report.findings:
            SubElement(suite, "testcase", name=summary(report), classname="hlo-lint")
        for reason, paths in report.skipped_by_reason().items():
            name = listed(map(shown, paths), 1)
            case = SubElement(suite, "testcase", name=name, classname="hlo-lint")
            SubElement(case, "skipped", message=shown(reason))
    for suite in root:
        _count(suite, list(suite))
    _count(root, list(root.iter("testcase")))
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _case(root: Element, suites: dict[str, Element], finding: Diagnostic) -> Element:
    """A test case for a finding, in the suite of its file."""
    path = shown(relative_path(finding.path))
    if path not in suites:
        suites[path] = SubElement(root, "testsuite", name=path)
    of = f" in %{finding.instruction}" if finding.instruction else ""
    return SubElement(
        suites[path],
        "testcase",
        name=shown(f"{finding.rule}{of} at {finding.line}:{finding.column}"),
        classname=shown(finding.module) or "hlo-lint",
        file=path,
        line=str(finding.line),
    )


def _add_finding(case: Element, finding: Diagnostic) -> None:
    if finding.severity is Severity.INFO:
        SubElement(case, "system-out").text = as_text(finding)
        return
    failure, message = f"{finding.severity.value}[{finding.rule}]", shown(finding.message)
    SubElement(case, "failure", type=failure, message=message).text = as_text(finding)


def _count(suite: Element, cases: list[Element]) -> None:
    suite.set("tests", str(len(cases)))
    for attribute, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("errors", "0")
