// Package extension speaks the Azure VM extension contract for ortet-node: the
// Linux agent and the Windows agent call the handler's commands (install, enable,
// update, disable, uninstall), and read what it writes into its folders.
//
// enable has 300 seconds before the agent kills its process group, and a boot
// may take longer: it writes the status transitioning, leaves `ortet-node wait`
// behind in a session of its own, and returns. The status ends as success or
// error, with a substatus per stage. A sequence number that was handled is not
// handled again (mrseq). Facts about the contract: Azure/WALinuxAgent,
// azurelinuxagent/ga/exthandlers.py.
package extension
