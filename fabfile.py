"""What a person does by hand to the pipeline of inventory/local: `fab --list` names it.

Thin on purpose: whatever changes a configuration is a playbook, not a task here.
"""

from __future__ import annotations

from pathlib import Path

from invoke import Context, task

CHECKOUT = Path(__file__).resolve().parent
PROGRAMS = CHECKOUT / ".venv" / "bin"
SUPERVISOR = CHECKOUT / "var" / "local" / "supervisor" / "supervisord.conf"


def supervisorctl(context: Context, arguments: str) -> None:
    if not (SUPERVISOR.parents[1] / "supervisor.sock").exists():
        raise SystemExit("No pipeline runs here: roll one out with `ansible-playbook playbooks/site.yml`.")
    # Supervisor's own exit code 3 only says that some service is stopped.
    result = context.run(f"{PROGRAMS}/supervisorctl -c {SUPERVISOR} {arguments}", warn=True)
    if result is not None and result.exited not in (0, 3):
        raise SystemExit(1)


@task
def status(context: Context) -> None:
    """Show every service with its state and process id."""
    supervisorctl(context, "status")


@task(help={"service": "the service's name, as `fab status` shows it"})
def drain(context: Context, service: str) -> None:
    """Take one service out: it stops in order, and clients go on with the others."""
    supervisorctl(context, f"stop {service}")


@task(help={"service": "the service's name, as `fab status` shows it"})
def restore(context: Context, service: str) -> None:
    """Bring a drained service back."""
    supervisorctl(context, f"start {service}")


@task
def down(context: Context) -> None:
    """Stop the pipeline and keep its data."""
    context.run(f"cd {CHECKOUT} && {PROGRAMS}/ansible-playbook -i inventory/local playbooks/down.yml")
