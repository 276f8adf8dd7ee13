"""Has a run that failed end with 1, whatever failed: 2 is what a plan with changes ends with (scripts/plan.py).

Ansible itself would end with 2 where a task failed and with 4 where a host was not reached. Invariants: what Ansible calls well
ends with 0, and what it does not understand (an option, a play) with Ansible's own code.
"""

from __future__ import annotations

from typing import Any

from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: headrace_exit_code
type: notification
short_description: Ends a failed run with 1
description:
  - A run in which a task failed or a host was not reached ends with the exit code 1.
author: The headrace contributors
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Hears nothing: Ansible takes the code of a failed play from its manager, which is there once callbacks are loaded."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "headrace_exit_code"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        TaskQueueManager.RUN_FAILED_HOSTS = TaskQueueManager.RUN_ERROR
        TaskQueueManager.RUN_UNREACHABLE_HOSTS = TaskQueueManager.RUN_ERROR
