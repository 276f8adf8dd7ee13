"""What a person does by hand to a pipeline, that of inventory/local unless another is named: `fab --list` names it.

Thin on purpose: whatever changes a host is a playbook, not a task here.
"""

from __future__ import annotations

import json
import shlex
import socket
from pathlib import Path

from invoke import Context, task

CHECKOUT = Path(__file__).resolve().parent
PROGRAMS = CHECKOUT / ".venv" / "bin"
SUPERVISOR = CHECKOUT / "var" / "local" / "supervisor" / "supervisord.conf"
LOCAL = "inventory/local"
INVENTORY = {"inventory": f"the inventory; {LOCAL} by default"}


def play(context: Context, inventory: str, playbook: str, *arguments: str) -> None:
    words = [str(PROGRAMS / "ansible-playbook"), "-i", inventory, f"playbooks/{playbook}", *arguments]
    result = context.run(f"cd {shlex.quote(str(CHECKOUT))} && {shlex.join(words)}", warn=True)
    if result is not None and result.exited != 0:
        raise SystemExit(1)


def answers(path: Path) -> bool:
    """Whether somebody listens at a socket; one that was killed, as by a boot, leaves its file."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


def supervisorctl(context: Context, arguments: str) -> None:
    if not answers(SUPERVISOR.parents[1] / "supervisor.sock"):
        raise SystemExit("No pipeline runs here: roll one out with `ansible-playbook playbooks/site.yml`.")
    # Supervisor's own exit code 3 only says that some service is stopped.
    result = context.run(f"{PROGRAMS}/supervisorctl -c {SUPERVISOR} {arguments}", warn=True)
    if result is not None and result.exited not in (0, 3):
        raise SystemExit(1)


@task(help=INVENTORY)
def status(context: Context, inventory: str = LOCAL) -> None:
    """Show which hosts are drained, and of inventory/local every service with its state and process id."""
    if inventory == LOCAL:
        supervisorctl(context, "status")
    play(context, inventory, "drained.yml")


@task(
    help={
        "host": "the host's name in the inventory",
        "reason": "why, for others to read",
        **INVENTORY,
    }
)
def drain(context: Context, host: str, reason: str, inventory: str = LOCAL) -> None:
    """Take a host out: its services stop in order, clients go on with the others, and nothing but `restore` starts them."""
    play(context, inventory, "drain.yml", "--limit", host, "-e", json.dumps({"drain_reason": reason}))


@task(help={"host": "the host's name in the inventory", **INVENTORY})
def restore(context: Context, host: str, inventory: str = LOCAL) -> None:
    """Bring a drained host back."""
    play(context, inventory, "restore.yml", "--limit", host)


@task(help=INVENTORY)
def down(context: Context, inventory: str = LOCAL) -> None:
    """Stop the pipeline and keep its data."""
    play(context, inventory, "down.yml")
