"""Brings a host the bundles of a release that it lacks, and has the module of the same name install them.

Whether it lacks any is asked of the installed release's stamp, so that a host that has all of them costs one module run and
nothing is sent. A bundle goes to one place on the host, which its digest names: sent before and whole, it is not sent again.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible loads this file by itself, without a package around it.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from headrace_inventory.asking import answered
from headrace_inventory.bundles import BundleError, manifest_of, releases

ADDRESS_SECONDS = 3600


class ActionModule(ActionBase):  # type: ignore[misc]
    """Ansible finds it by this name."""

    TRANSFERS_FILES = True
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        return answered(lambda: self._installed(task_vars), task_vars)

    def _installed(self, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        arguments = dict(self._task.args)
        stamp = self._stamp(arguments)
        release = described(arguments["folder"], arguments["version"], arguments["bundles"], stamp)
        lacking = not releases.has_all(stamp, release["bundles"])
        places: dict[str, str] = {}
        try:
            if lacking and not self._task.check_mode:
                for name, bundle in release["bundles"].items():
                    places[name] = (
                        offered(arguments["folder"], bundle, arguments["bucket"], arguments.get("region"))
                        if arguments.get("bucket")
                        else self._bring(arguments["folder"], bundle)
                    )
            found: dict[str, Any] = self._execute_module(
                module_name="headrace_release",
                module_args={**arguments, "release": release, "places": places},
                task_vars=task_vars,
            )
            if not found.get("failed"):
                self._remove(place for place in places.values() if "://" not in place)
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return found

    def _stamp(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        path = os.path.join(releases.folder_of(arguments["home"], arguments["version"]), releases.STAMP)
        answer = self._low_level_execute_command(f"cat {shlex.quote(path)}")
        if answer["rc"] != 0:
            return None
        stamp: dict[str, Any] = json.loads(answer["stdout"])
        return stamp

    def _bring(self, folder: str, bundle: dict[str, Any]) -> str:
        """Copy a bundle to the host unless it is there whole; the module looks at its digest in any case."""
        if not self._connection._shell.tmpdir:
            self._make_tmp_path()
        parent = os.path.dirname(self._connection._shell.tmpdir)
        place = os.path.join(parent, f"headrace-{bundle['sha256'][:16]}.tar")
        answer = self._low_level_execute_command(f"sha256sum {shlex.quote(place)}")
        if not answer["stdout"].startswith(bundle["sha256"]):
            self._connection.put_file(os.path.join(folder, bundle["file"]), place)
        return place

    def _remove(self, paths: Any) -> None:
        names = " ".join(map(shlex.quote, paths))
        if names:
            self._low_level_execute_command(f"rm -f {names}")


def offered(folder: str, bundle: dict[str, Any], bucket: str, region: str | None) -> str:
    """An address, good for an hour, of a bundle in the bucket, where it is put once for all hosts of a datacenter.

    Signed here, so that no host has a right to the bucket, or needs a program or credentials to read from it.
    """
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    key = f"releases/{bundle['sha256']}.tar"
    client = boto3.client("s3", region_name=region, config=Config(signature_version="s3v4"))
    lock = Path(tempfile.gettempdir()) / f"headrace-{bucket}-{bundle['sha256'][:16]}.lock"
    try:
        # Hosts of one datacenter come here at once, each in a process of its own: the first one uploads.
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            listed = client.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", [])
            if [each["Size"] for each in listed] != [bundle["size"]]:
                client.upload_file(os.path.join(folder, bundle["file"]), bucket, key)
        address: str = client.generate_presigned_url(
            "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=ADDRESS_SECONDS
        )
    except (BotoCoreError, ClientError, OSError) as error:
        raise AnsibleActionFail(
            f"{bundle['file']} cannot be put into the bucket {bucket}: {error}"
        ) from error
    return address


def described(folder: str, version: str, bundles: list[str], stamp: dict[str, Any] | None) -> dict[str, Any]:
    """What the manifest says of the release, with those of these bundles, and of the ones that the host has, that are enough."""
    try:
        manifest = manifest_of(folder, version, bundles)
    except BundleError as error:
        raise AnsibleActionFail(str(error)) from error
    # Something may run from what the host needs no more.
    had = [name for name, bundle in manifest["bundles"].items() if releases.has_all(stamp, {name: bundle})]
    return {**manifest, "bundles": releases.covering(manifest["bundles"], {*bundles, *had})}
