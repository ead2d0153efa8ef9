"""Drives the Azure Linux Agent's own handler code, without Azure and without the
agent's daemon: one JSON request a line on standard input, one JSON answer a line
on standard output. The agent's protocol is stood in for by a folder of packages.

    python3 agent.py LIB LOG PACKAGES
"""

import json
import os
import shutil
import sys
import warnings

warnings.simplefilter("ignore")

lib, logs, packages = sys.argv[1:4]
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the agent prints is no answer

from azurelinuxagent.common import conf  # noqa: E402
from azurelinuxagent.common.protocol import restapi  # noqa: E402
from azurelinuxagent.ga import exthandlers  # noqa: E402

settings_file = os.path.join(lib, "waagent.conf")
with open(settings_file, "w") as f:
    f.write("Lib.Dir=%s\nExtension.LogDir=%s\n" % (lib, logs))
conf.load_conf_from_file(settings_file)


class Protocol(object):
    """The part of the agent's protocol that handlers need."""

    def get_endpoint(self):
        return "127.0.0.1"


def instance(request):
    handler = restapi.Extension(name="Ortet.Node.Linux")
    handler.version = request["version"]
    handler.state = "enabled"
    setting = restapi.ExtensionSettings(
        name=handler.name, sequenceNumber=request.get("sequence", 0), publicSettings=request.get("settings", {}))
    handler.settings.append(setting)
    of = exthandlers.ExtHandlerInstance(handler, Protocol())
    of.pkg = restapi.ExtHandlerPackage(version=handler.version)
    of.pkg.uris = [handler.version + ".zip"]
    return of, setting


def told(status):
    return {
        "status": status.status,
        "code": status.code,
        "message": status.message,
        "operation": status.operation,
        "substatus": [{"name": s.name, "status": s.status, "code": s.code, "message": s.message} for s in status.substatusList],
    }


def carry_out(request):
    do = request["do"]
    if do == "limits":
        return {"file": exthandlers._MAX_STATUS_FILE_SIZE_IN_BYTES}
    if do == "parse":
        status = restapi.ExtensionStatus(name="x", seq_no=0)
        with open(request["path"]) as f:
            exthandlers.parse_ext_status(status, json.load(f))
        return told(status)
    of, setting = instance(request)
    handlers = exthandlers.ExtHandlersHandler(of.protocol)
    if do == "enable":
        # A package that is there is not fetched.
        there = os.path.join(lib, of.get_extension_package_zipfile_name())
        if not os.path.exists(there):
            shutil.copyfile(os.path.join(packages, of.pkg.uris[0]), there)
        handlers.handle_enable(of, setting)
    elif do == "uninstall":
        handlers.handle_uninstall(of, setting)
    elif do == "status":
        done, _ = of.is_ext_handling_complete(setting)
        answer = told(of.collect_ext_status(setting))
        answer.update(done=done, handler=of.get_handler_status().status, heartbeat=of.collect_heartbeat())
        return answer
    else:
        raise ValueError(do)
    return {"state": of.get_handler_state()}


for line in sys.stdin:
    try:
        answer = carry_out(json.loads(line))
    except Exception as e:  # what the agent says of a failure is an answer too
        answer = {"error": "%s: %s" % (type(e).__name__, e)}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
