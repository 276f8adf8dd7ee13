"""Prints a text for people as it is, and fails when there are problems, each a sentence of its own."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display


class ActionModule(ActionBase):  # type: ignore[misc]
    """Found by the task's name; nothing runs on any host."""

    _requires_connection = False
    _VALID_ARGS = frozenset(("text", "problems"))

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        problems = [str(each) for each in self._task.args["problems"]]
        display = Display()
        display.display(f"\n{self._task.args['text']}\n")
        for sentence in problems:
            display.display(sentence, color="red")
        if not problems:
            return {"changed": False}
        count = "One thing is" if len(problems) == 1 else f"{len(problems)} things are"
        return {"changed": False, "failed": True, "msg": f"{count} not well, as told above."}
