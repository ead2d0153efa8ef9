// Package extension is the node's side of the Azure VM extension (`ortet-node
// extension install|enable|update|disable|uninstall`): the commands that the
// Azure agent runs, and the status by which it tells Azure what became of the
// boot. What is waited for, and how it is judged, is internal/node/bootstrap's.
//
// # The contract
//
// Source of fact: Azure/WALinuxAgent azurelinuxagent/ga/exthandlers.py and
// extensionprocessutil.py, 2.7.3 (Debian 12) and of 2025-11; both are tested with.
//
//   - The agent unpacks the package into the handler's folder (NAME-VERSION below
//     /var/lib/waagent, on Windows NAME\VERSION below C:\Packages\Plugins), writes
//     HandlerEnvironment.json and config/N.settings there, and runs the manifest's
//     commands one at a time. N, the sequence number, is in ConfigSequenceNumber;
//     where it is not, the highest N.settings counts. The numbers need not rise:
//     another number is another configuration. An extension of several instances
//     has its instance's name in ConfigExtensionName and before every N.
//   - enable has 300 s and is then killed with its process group, so it writes the
//     status "transitioning", leaves a waiter behind and ends. install, update and
//     disable have 900 s, uninstall 300 s.
//   - status/N.status is an array; only its first element is read. The status is
//     transitioning, warning, error or success; only the last two end the
//     provisioning. A missing file counts as transitioning. A file of more than
//     128 KiB has its message cut to 1 KiB and its parts to 10 KiB; ours stay below.
//   - mrseq, in the handler's folder, is the number that was taken up last. The
//     agent copies it and the status files to the folder of the next version, but
//     not those of named instances: update does.
//   - An update runs: disable (old), copy, update (new), uninstall (old), install
//     (new), enable (new). So disable leaves mrseq and status as they are, and
//     uninstall nothing that versions share.
//   - Where the manifest says reportHeartbeat, heartbeat.log has to be renewed every
//     600 s for as long as the handler is enabled, not only while it works, or the
//     handler counts as unresponsive. We have no process that stays; so our
//     manifest does not say it. Where another does, the waiter renews it while it
//     waits, every 4 minutes, which are its only wake-ups.
//   - After a reboot the agent runs enable again, with the same number.
//
// # What enable does
//
// A number whose status is final is done: nothing happens. Otherwise, if its
// waiter runs, nothing happens either. Otherwise it is waited for (anew): the
// verdict of this boot, if there is one already that answers the same question,
// becomes the status at once.
//
// Where another number was taken up before, somebody changed the settings or forced
// an update, and asks anew: a verdict of before counts only if it is Succeeded. So it
// is for a number that was disabled before it had its answer. The
// first number of all takes the verdict that a baked unit gave, say.
//
// The deadline runs from the first enable of a number: one whose waiter was killed
// has what is left, when the agent runs enable again. It begins anew with another
// number, after disable, and in another boot: a machine that was off for a day has
// not spent it. A boot is another where more time went by than the kernel runs.
//
// # The waiter
//
// `ortet-node extension wait` runs as a transient service of systemd's, where there
// is one, outside the agent's control groups, and systemd begins it again if it is
// killed. Elsewhere, and where systemd refuses, it runs in a session of its own.
// What tells that it is wanted, and where it runs, is in waiter.json; a waiter
// that is not the one named there ends without a word. A lock on the folder lets
// nobody take that away between a waiter's reading it and its writing who it is,
// and none is left that disable did not find.
package extension
