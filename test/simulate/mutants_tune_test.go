package simulate

// tuneMutants are bugs of tunings and of what proves them.
var tuneMutants = []mutant{
	{"list of tunings not believed", "TestListIsNotBelieved", "", "internal/node/generalize/tune/tune.go",
		`if !slices.ContainsFunc(tunings(), known) || slices`,
		`if known(tuning{}) || slices`},
	{"file of a tuning taken away", "TestTuningsAddAndLeaveNothing", "", "internal/node/generalize/tune/tune.go",
		`gone := append(pathsOf(p.ours), List)`,
		`gone := append(pathsOf(nil), List)`},
	{"changed file of a tuning stays", "TestChangedFileStays", "", "internal/node/generalize/tune/tune.go",
		`err == nil && digest(text) != f.SHA256`,
		`err == nil && digest(text) == ""`},
	{"units compared with the donor's", "TestGatesOfTunedVersions", "", "internal/image/prove/tuned.go",
		`c.Boot.Failed != nil && b.DonorBoot.Failed != nil && c`,
		`c.Boot.Failed != nil && c`},
	{"canary of tunings not left out", "test/simulate TestImpossibleCanaries", "", "internal/image/plan/plan.go",
		`q.CanaryTest == "" && len(q.Tune) == 0`,
		`q.CanaryTest == ""`},
	{"boot report counts by its vmId", "test/simulate TestBootsOfMachines", "", "internal/image/clones/boot.go",
		`!strings.EqualFold(report.VMID, i.VMID)`,
		`strings.EqualFold(report.VMID, "of another")`},
	{"tag by the request", "test/simulate TestOutcomeTunedAsApplied", "", "internal/image/capture/parts.go",
		`fleet.TagTuned: s.Tuned})`,
		`fleet.TagTuned: wire.JoinTunings(c.req.Tune)})`},
	{"donor's boot read until it is known", "test/simulate TestOutcomeTunedOfEachDonor", "", "internal/image/capture/canary/tuned.go",
		`!b.Known() && err == nil && c.Boot`,
		`was == nil && err == nil && c.Boot`},
}
