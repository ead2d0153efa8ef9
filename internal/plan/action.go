package plan

import "slices"

// CaptureActions gives the Azure actions that a capture of the course needs on
// the pool's resource group, each once, sorted.
func CaptureActions(options Options, course Course) []string {
	actions := []string{
		"Microsoft.Compute/virtualMachineScaleSets/read",
		"Microsoft.Compute/virtualMachineScaleSets/write",
		"Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
		"Microsoft.Compute/virtualMachineScaleSets/virtualMachines/instanceView/read",
		"Microsoft.Compute/disks/read",
		"Microsoft.Compute/snapshots/read",
		"Microsoft.Compute/snapshots/delete",
		"Microsoft.Compute/galleries/read",
		"Microsoft.Compute/galleries/images/read",
		"Microsoft.Compute/galleries/images/versions/read",
		"Microsoft.Compute/galleries/images/versions/delete",
	}
	if !options.Extensions.None {
		actions = append(actions,
			"Microsoft.Compute/virtualMachineScaleSets/extensions/read",
			"Microsoft.Compute/virtualMachineScaleSets/extensions/delete")
	}
	if course.Start < AtVersion {
		actions = append(actions,
			"Microsoft.Compute/galleries/write",
			"Microsoft.Compute/galleries/images/write",
			"Microsoft.Compute/galleries/images/versions/write")
	}
	if course.NeedsWorkbench() {
		actions = append(actions,
			"Microsoft.Compute/snapshots/write",
			"Microsoft.Compute/disks/write",
			"Microsoft.Compute/disks/delete",
			"Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write")
	}
	if course.FromDonor() {
		stop := "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/powerOff/action"
		if options.Deallocate {
			stop = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/deallocate/action"
		}
		actions = append(actions, stop, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/start/action")
	}
	slices.Sort(actions)
	return actions
}

// RollbackActions gives those that a rollback needs.
func RollbackActions() []string {
	return []string{
		"Microsoft.Compute/galleries/images/read",
		"Microsoft.Compute/galleries/images/versions/read",
		"Microsoft.Compute/galleries/images/versions/write",
		"Microsoft.Compute/galleries/read",
		"Microsoft.Compute/virtualMachineScaleSets/read",
		"Microsoft.Compute/virtualMachineScaleSets/write",
	}
}
