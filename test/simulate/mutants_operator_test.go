package simulate

// operatorMutants are bugs of the operator.
var operatorMutants = []mutant{
	{"runs end with leadership", "test/simulate TestOperatorRaisesDonors", "", "internal/operator/runs.go",
		`ctx, cancel := context.WithCancelCause(r.leading)`,
		`ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.leading))`},
	{"of two objects of one scale set the older counts", "test/simulate TestOperatorStalls", "", "internal/operator/want.go",
		`(older < 0 || older == 0 && o.Name < p.Name)`,
		`older == 0 && o.Name < p.Name`},
	{"a rollout that was killed with its last node ended", "test/simulate TestOperatorEndsRolloutOfLastNode", "", "internal/operator/observe.go",
		`len(o.pool.Renewing) > 0`,
		`len(o.pool.Renewing) > 99`},
	{"budget of a rollout", "test/simulate TestMonth", "", "internal/image/renew/rollout.go",
		`len(out) >= limit:`,
		`len(out) >= 99*limit:`},
}
