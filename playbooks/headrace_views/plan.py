"""What a roll-out would do, told from what its modules say in check mode, in the order in which it would be done.

Invariant: whatever a module says it would change stands in the plan; what nobody has words for stands there by its task's name.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Seen = Mapping[str, Any]
"""One result: play, task, module, host, and the result itself."""
Plan = dict[str, list[dict[str, Any]]]

SECTIONS = (
    "failures",
    "installations",
    "removals",
    "settings",
    "files",
    "services",
    "topics",
    "others",
    "orphans",
    "drained",
    "warnings",
)
# What is no change of anything, and still belongs into a plan.
REMARKS = frozenset({"failures", "orphans", "drained", "warnings"})
STARTED_FROM, AFTER_A_BOOT = " is started from", " after a boot"
NEW_FILE_LINES = "new, {} lines"
STEP_WORDS = {"start": "starts", "restart": "restarts", "reload": "reloads"}


def plan_of(seen: Iterable[Seen]) -> Plan:
    plan: Plan = {name: [] for name in SECTIONS}
    for each in seen:
        for section, entry in entries(each):
            if entry not in plan[section]:
                plan[section].append(entry)
    return plan


def exit_code(plan: Plan) -> int:
    """0 when nothing would be done, 2 when something would, 1 when that cannot be told."""
    if plan["failures"]:
        return 1
    return 2 if any(entries for name, entries in plan.items() if name not in REMARKS) else 0


def entries(seen: Seen) -> Iterator[tuple[str, dict[str, Any]]]:
    """What one result adds to a plan, each with its section."""
    host, result, module = seen["host"], seen["result"], seen["module"]
    if seen["failed"]:
        yield "failures", {"host": host, "task": seen["task"], "sentence": str(result.get("msg", "")).strip()}
        return
    named = [*result.get("leftovers", []), *result.get("strangers", [])]
    for name in result.get("leftovers", []):
        yield (
            "orphans",
            {"host": host, "sentence": f"{name} runs on {host}, and no host of the inventory has it."},
        )
    for sentence in result.get("strangers", []):
        yield "orphans", {"host": host, "sentence": sentence}
    for warning in result.get("warnings", []):
        if not any(str(warning) == name or str(warning).startswith(f"{name} runs on ") for name in named):
            yield "warnings", {"host": host, "sentence": str(warning)}
    if result.get("drained"):
        yield "drained", {"host": host, "sentence": result["sentence"]}
    yield from changes(seen, module)


def changes(seen: Seen, module: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """What would be done, in words of the module that would do it."""
    host, result = seen["host"], seen["result"]
    if not result.get("changed"):
        return
    if module == "headrace_service":
        yield from service_changes(seen)
    elif module == "headrace_supervisord":
        yield "services", service_entry(seen, "start", "supervisord", "it does not run")
    elif module == "headrace_topics":
        for name in result["created"]:
            yield "topics", {"host": host, "topic": name}
    elif module == "headrace_release":
        for each in differences(result):
            yield "installations", {"host": host, "what": f"{each['after_header']}: {each['after'].strip()}"}
        for version in result.get("removed", []):
            yield "removals", {"host": host, "what": f"release {version}"}
    elif module == "headrace_preparation":
        yield from preparation_changes(seen)
    elif differences(result):
        for each in differences(result):
            yield "files", file_entry(host, each)
    else:
        yield "others", {"host": host, "what": seen["task"]}


def preparation_changes(seen: Seen) -> Iterator[tuple[str, dict[str, Any]]]:
    host, result = seen["host"], seen["result"]
    for package in result.get("packages", []):
        yield "installations", {"host": host, "what": f"package {package}"}
    for each in differences(result):
        header = each["after_header"]
        if header.startswith("/"):
            yield "files", file_entry(host, each)
        elif header != "packages":
            what = f"{header} from {each['before'].strip()} to {each['after'].strip()}"
            yield "settings", {"host": host, "what": what}


def service_changes(seen: Seen) -> Iterator[tuple[str, dict[str, Any]]]:
    host, result = seen["host"], seen["result"]
    name, step = seen["name"], result.get("step", "none")
    reason = {"missing": "it is not there yet", "stopped": "it does not run"}.get(result.get("state", ""), "")
    for each in differences(result):
        header = each["after_header"]
        if header.endswith(STARTED_FROM):
            reason = reason or "; ".join(reasons(each["before"], each["after"]))
        elif header.endswith(AFTER_A_BOOT):
            yield "settings", {"host": host, "what": f"{name} comes back after a boot"}
        else:
            yield "files", file_entry(host, each)
    if step == "none" and not differences(result):
        yield "others", {"host": host, "what": f"{name}: {seen['task']}"}
    if step != "none":
        yield "services", service_entry(seen, step, name, reason or "it ends again and again")


def service_entry(seen: Seen, step: str, name: str, reason: str) -> dict[str, Any]:
    return {"host": seen["host"], "play": seen["play"], "step": step, "service": name, "reason": reason}


def differences(result: Mapping[str, Any]) -> list[dict[str, str]]:
    found = result.get("diff") or []
    return list(found) if isinstance(found, list) else [found]


def file_entry(host: str, difference: Mapping[str, str]) -> dict[str, Any]:
    """A file, or a directory, with the lines that change; of a new file, all of them."""
    before, after = (difference[key].splitlines() for key in ("before", "after"))
    is_new = not before
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
    shown = [line for line in lines if not line.startswith("@@")]
    return {"host": host, "path": difference["after_header"], "new": is_new, "lines": shown}


def reasons(before: str, after: str) -> list[str]:
    """Why a process does not run from what is wanted, from the texts of headrace_fingerprint."""
    if not before.strip():
        return ["what it runs from is not known"]
    (old, old_release), (new, new_release) = parts(before), parts(after)
    found = [f"{what(path)} changes" for path in new if path in old and new[path] != old[path]]
    found += [f"{what(path)} is new" for path in new if path not in old]
    found += [f"{what(path)} goes" for path in old if path not in new]
    if old_release != new_release:
        found.append(f"from {release_name(old_release)} to {release_name(new_release)}")
    return found or ["it runs from something else"]


def parts(text: str) -> tuple[dict[str, str], str]:
    """The digest of each file by its path, and the release."""
    *files, release = text.strip().splitlines()
    pairs = [line.partition("  ") for line in files]
    return {path: digest for digest, _, path in pairs}, release


def what(path: str) -> str:
    return "its definition" if path == "definition" else os.path.basename(path)


def release_name(path: str) -> str:
    """The release that a program's folder belongs to; the folder itself where it is none."""
    head, _, rest = path.partition("/releases/")
    return f"release {rest.split('/')[0]}" if head and rest else path


def text_of(plan: Plan, full: bool = False) -> str:
    """The plan for people; `full` also shows the lines of new files."""
    blocks = [
        block("Would be installed:", [f"{e['host']}  {e['what']}" for e in plan["installations"]]),
        block("Would be removed:", [f"{e['host']}  {e['what']}" for e in plan["removals"]]),
        block("Would be set:", [f"{e['host']}  {e['what']}" for e in plan["settings"]]),
        block("Would be written:", files_shown(plan["files"], full)),
        block("Services, in this order:", services_shown(plan["services"])),
        block("Topics that would be created:", [f"{e['topic']}  by {e['host']}" for e in plan["topics"]]),
        block("Would also be done:", [f"{e['host']}  {e['what']}" for e in plan["others"]]),
        block("Drained, and left so:", sentences(plan["drained"])),
        block("Nobody wants any more, and left as it is:", sentences(plan["orphans"])),
        block("Warnings:", [f"{e['host']}  {e['sentence']}" for e in plan["warnings"]]),
        block(
            "Failed, so that the plan ends here:", [f"{e['host']}  {e['sentence']}" for e in plan["failures"]]
        ),
    ]
    return "\n\n".join([*filter(None, blocks), summary(plan)])


def block(title: str, lines: list[str]) -> str:
    """A sentence may have several lines."""
    return "\n".join([title, *(f"  {line}".replace("\n", "\n  ") for line in lines)]) if lines else ""


def sentences(found: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(each["sentence"] for each in found))


def files_shown(files: list[dict[str, Any]], full: bool) -> list[str]:
    """Each change once, with all hosts that it is the same on."""
    same: dict[tuple[str, bool, tuple[str, ...]], list[str]] = {}
    for each in files:
        key = (os.path.basename(each["path"]), each["new"], tuple(each["lines"]))
        same.setdefault(key, []).append(f"{each['host']}:{each['path']}")
    lines = []
    for (_, is_new, changed), places in same.items():
        note = f"  ({NEW_FILE_LINES.format(len(changed))})" if is_new else ""
        lines += [f"{place}{note}" for place in places]
        if full or not is_new:
            lines += [f"    {line}" for line in changed]
    return lines


def services_shown(services: list[dict[str, Any]]) -> list[str]:
    lines, play = [], None
    for each in services:
        if each["play"] != play:
            play = each["play"]
            lines.append(f"{play}:")
        on = "" if each["host"] == each["service"] else f" on {each['host']}"
        lines.append(f"  {each['service']}{on} {STEP_WORDS[each['step']]}: {each['reason']}")
    return lines


def summary(plan: Plan) -> str:
    """The last line: what there is of everything, in numbers."""
    steps = [each["step"] for each in plan["services"]]
    counts = {
        "to install": len(plan["installations"]),
        "to remove": len(plan["removals"]),
        "to set": len(plan["settings"]),
        "files to write": len(plan["files"]),
        "services to start": steps.count("start"),
        "to restart": steps.count("restart"),
        "to reload": steps.count("reload"),
        "topics to create": len(plan["topics"]),
        "other changes": len(plan["others"]),
        "drained": len(plan["drained"]),
        "orphaned": len(sentences(plan["orphans"])),
    }
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    if plan["failures"]:
        return f"Plan: not whole, since {len(plan['failures'])} tasks failed{'; ' if told else ''}{told}."
    if exit_code(plan) == 0:
        return f"Plan: nothing would change{'; ' if told else ''}{told}."
    return f"Plan: {told}."
