package simulate

// freshMutants are bugs of a capture that raises its donor.
var freshMutants = []mutant{
	{"fresh donor deleted by its id", "test/simulate TestFreshPools", "", "internal/image/capture/fresh/delete.go",
		`change := fleet.DeleteInstances{Pool: id, Instances: []string{d.Instance.Name()}}`,
		`change := fleet.SetCapacity{Pool: id, Capacity: d.To - 1}`},
	{"fresh donor out of service at the first look", "test/simulate TestFresh", "", "internal/image/capture/fresh/raise.go",
		`if n := *x.Node; n.Annotations[fleet.AnnotationFresh] != of.Capture || !n.Unschedulable {`,
		`if n := *x.Node; n.Ready && r.Now().Sub(n.ReadySince) > 10*time.Second && !n.Unschedulable {`},
	{"capacity of a refused PATCH forgotten", "test/simulate TestFreshEnds", "", "internal/image/capture/fresh/raise.go",
		`if was == 0 && workflow.HadNoEffect(err) {`,
		`if was == 0 && err == nil && r.Donor.Get().To == 0 {`},
	{"record without a donor restored", "test/simulate TestFreshEnds", "", "internal/image/capture/capture.go",
		`instance = cmp.Or(s.Instance, s.Fresh.Instance, s.Pool.Child("virtualMachines", "0"))`,
		`instance = s.Instance`},
	{"surplus donor replaced", "test/simulate TestFreshPools", "", "internal/image/capture/fresh/raise.go",
		`case gone && !pool.Overprovision:`,
		`case gone:`},
	{"donor that is up kept though a read fails", "test/simulate TestFreshEnds", "", "internal/image/capture/raise.go",
		`c.Now().Sub(begun) >= replanFor {`,
		`c.Now().Sub(begun) >= 0 {`},
	{"inspection of a fresh donor undoes more than nothing", "test/simulate TestFreshEnds", "", "internal/image/capture/capture.go",
		`workflow.ExitCode(err) == workflow.ExitFailed && c.asked.Fresh == "" {`,
		`workflow.ExitCode(err) == workflow.ExitFailed {`},
	{"donor that was undone forgotten", "test/simulate TestFreshEnds", "", "internal/image/capture/fresh/delete.go",
		`		r.Donor.Set(func(d *Donor) { *d = Donor{} })
		r.raising`,
		`		r.raising`},
	{"plan of a donor that is up not counted", "test/simulate TestFreshEnds", "", "internal/workflow/run.go",
		`if !continues(x.failure) {`,
		`if x.failure != nil {`},
}
