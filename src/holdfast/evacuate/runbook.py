"""Write a runbook for evacuations: commands, the IAM policy, and lines for Terraform, to keep on paper."""

import json
from collections.abc import Sequence

from holdfast.evacuate.action import ACTIONS
from holdfast.evacuate.journals import JOURNALS
from holdfast.status.stores import STATUS_STORES


def build_runbook(
    workload: str,
    *,
    region: str,
    zones: Sequence[str],
    actions: Sequence[str],
    journal: str,
    status_store: str,
    accounts: Sequence[str],
    roles: Sequence[str],
) -> str:
    """Return the runbook of a workload as Markdown."""
    policy = json.dumps(build_policy(actions, journal, status_store, roles), indent=2)
    text = _TEMPLATE.format(
        workload=workload,
        region=region,
        zones=", ".join(zones),
        actions=", ".join(actions),
        accounts=", ".join(accounts) or "the account of the credentials",
        journal=journal,
        status_store=status_store,
        commands="\n\n".join(_describe_zone(workload, zone) for zone in zones),
        policy=policy,
    )
    lines = [kind.terraform.strip() for kind in map(ACTIONS.get, actions) if kind.terraform]
    if lines:
        text += "\n## Terraform\n\nIf a kind of resource is listed twice, put both lists into one `ignore_changes`.\n"
        text += "\n```terraform\n" + "\n\n".join(lines) + "\n```\n"
    return text


_TEMPLATE = """\
# Evacuate a zone of {workload}

| | |
|---|---|
| region | {region} |
| zones | {zones} |
| actions | {actions} |
| accounts | {accounts} |
| journal | {journal} |
| status store | {status_store} |

You need the settings file, AWS credentials, and access to the journal and the status store. You do not need the
Holdfast server.

## Before you begin

1. Is exactly one zone affected? If several fail, moving traffic does not help.
2. Can the other zones carry all traffic? Scale them first if you are not sure.
3. Is another zone evacuated already, by a person or by AWS? The plan shows it.

{commands}

## If a step was interrupted

`holdfast zone runs` shows how far it is. `holdfast zone resume` finishes it, `holdfast zone restore` undoes it. You may
repeat both.

## If a guard refuses

Read what it found. If you know better, repeat the command with `--override GUARD`. The guard and your `--reason` are
recorded. While the Holdfast server is down, there is no verdict: look at your own dashboards. The prompt asks whether
you evacuate without one; with `--yes`, add `--override verdict`. If `capacity` refuses, add capacity in the other zones
first.

## If traffic must return before capacity does

A restore returns instances, tasks and functions first, and traffic when they are healthy. `holdfast zone restore` with
`--type load-balancer --type status` returns traffic alone.

## IAM policy

Operators, and a server that evacuates, need this policy in every account:

```json
{policy}
```
"""


def build_policy(
    actions: Sequence[str], journal: str, status_store: str, roles: Sequence[str] = ()
) -> dict[str, object]:
    """Return the IAM policy that actions, journal and status store need, and the roles of other accounts."""
    stores = JOURNALS.get(journal.partition(":")[0]), STATUS_STORES.get(status_store.partition(":")[0])
    needed = {each for kind in map(ACTIONS.get, actions) for each in kind.permissions}
    needed |= {each for kind in stores for each in kind.permissions}
    # ARC, ELB, Auto Scaling, EKS and EC2 list all resources, which IAM allows for "*" only.
    statement: dict[str, object] = {"Effect": "Allow", "Action": sorted(needed), "Resource": "*"}
    statements: list[dict[str, object]] = [statement] if needed else []
    if roles:
        statements.append({"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": list(roles)})
    return {"Version": "2012-10-17", "Statement": statements}


def _describe_zone(workload: str, zone: str) -> str:
    scope = f"{zone} --workload {workload}"
    return f"""\
## Evacuate {zone}

Look first:

```console
$ holdfast zone plan {scope}
```

Evacuate:

```console
$ holdfast zone evacuate {scope} --reason "..."
```

If that was interrupted, and every few hours until you restore, because zonal shifts expire after 12 hours (a server, or
`zone evacuate --stay`, renews them):

```console
$ holdfast zone resume {scope}
```

Later, when the zone is healthy again:

```console
$ holdfast zone restore {scope}
```"""
