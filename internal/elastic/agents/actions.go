package agents

// A Command is a command on a pool, with what it does in Azure besides reading scale
// sets and their instances.
type Command struct {
	Name    string   // "scale"
	Actions []string // on the compute group
}

// Actions lists the commands on pools.
func Actions() []Command {
	const set = "Microsoft.Compute/virtualMachineScaleSets/"
	const machine = set + "virtualMachines/"
	return []Command{
		{"scale", []string{set + "write", set + "delete/action"}},
		{"resize", []string{set + "write", set + "manualUpgrade/action"}},
		{"stop", []string{set + "deallocate/action"}},
		{"start", []string{set + "start/action"}},
		{"reimage", []string{machine + "powerOff/action", machine + "reimage/action", machine + "start/action", "Microsoft.Resources/tags/write"}},
		{"replace", []string{set + "write", set + "delete/action"}},
		{"chaos", []string{machine + "restart/action"}},
	}
}
