package simulate

// rolloutMutants are bugs of a rollout.
var rolloutMutants = []mutant{
	{"nodes that others took out of service count in the budget", "test/simulate TestRollouts", "", "internal/image/renew/rollout.go",
		`if c.Node != nil && (!c.Node.Ready || c.Node.Unschedulable) {`,
		`if c.Node != nil && c.Node.Annotations[fleet.AnnotationRollout] != "" {`},
	{"a node lacks the image by what it was made from", "TestModelChangedAndBack", "", "internal/image/renew/observe.go",
		`if same && !begun {`,
		`if same = c.Instance.LatestModelApplied; same && !begun {`},
	{"a Node is its machine by what Azure shows", "test/simulate TestRollouts", "", "internal/image/renew/turn.go",
		`if err := n.Claim().Is(i.Computer()); err != nil {`,
		`if err := n.Claim().Is(i.Computer()); err != nil && n.Name == "" {`},
	{"a node is judged in another boot", "test/simulate TestRollouts", "", "internal/image/renew/turn.go",
		`back := n.NotBack(before) == ""`,
		`back := n.NotBack("") == ""`},
	{"a node returns to service once it has passed", "test/simulate TestRollouts", "", "internal/image/renew/turn.go",
		`	if err := x.judge(ctx, i, n.Name, before, soak); err != nil {`,
		`	_ = x.Cluster.SetUnschedulable(ctx, n.Name, false)
	if err := x.judge(ctx, i, n.Name, before, soak); err != nil {`},
	{"the first node goes alone", "test/simulate TestRollouts", "", "internal/image/renew/rollout.go",
		`		parallel = 1
`,
		`		parallel = limit
`},
	{"the window is closed", "test/simulate TestRolloutWindow", "", "internal/image/renew/rollout.go",
		`case c.Why != Unfinished && !open:`,
		`case c.Why == "none" && !open:`},
	{"unfinished nodes first", "test/simulate TestRollouts", "", "internal/image/renew/observe.go",
		`rank := []string{Unfinished, Quarantined, Older}`,
		`rank := []string{Quarantined, Older, Unfinished}`},
	{"a quarantined model is not rolled out", "TestRefusals", "", "internal/image/renew/observe.go",
		`d.Refuse(quarantine != "",`,
		`d.Refuse(quarantine == "none",`},
	{"the node password of k3s deleted", "test/simulate TestRollouts", "", "internal/image/renew/turn.go",
		`if d := distribution(&n); d != "" {`,
		`if d := distribution(&n); d == "none" {`},
	{"a drained node returns at Ctrl-C", "TestInterruptedRolloutGoesOn", "", "internal/image/renew/turn.go",
		`(interrupted || errors.As`,
		`(interrupted && sent || errors.As`},
	{"a conflict at a Node repeated", "test/simulate TestRollouts", "", "internal/image/renew/turn.go",
		`	if fleet.Is(err, fleet.KindConflict) {`,
		`	if fleet.Is(err, fleet.KindNotFound) {`},
}
