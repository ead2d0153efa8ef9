package simulate

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var plant = flag.Bool("mutants", false, "plant each bug of mutants, and expect that its story or test finds it")

// A mutant is a bug, with what has to find it: a story that breaks an invariant, or, without an
// invariant, a test of the package of its file or of the one before the test's name.
type mutant struct {
	promise, finder, invariant string
	file, old, now             string
}

// mutants are bugs that break a promise of docs/reference/capture.md or docs/how-to/hands-off.md.
var mutants = []mutant{
	{"what was there before written ahead", "killed after the cordon", "1", "internal/image/capture/donor/service.go",
		`return node.Unschedulable, err`,
		`return node.Unschedulable || d.Cluster.SetUnschedulable(ctx, node.Name, true) != nil, err`},
	{"nothing changed without the pool lock", "laptop that sleeps while another process locks the pool", "11", "internal/workflow/lock.go",
		`return now.Before(l.expires) && now.Round(0).Before(l.expires.Round(0))`,
		`return !now.IsZero()`},
	{"version built once the donor is back", "donor that is Ready from before its stop while it boots", "12", "internal/image/capture/table.go",
		`stepGeneralizedSnapshot, donor.UndoStart, donor.UndoUncordon, donor.UndoUnprotect}`,
		`stepGeneralizedSnapshot}`},
	{"snapshot of a stopped donor", "donor started while its disk is copied", "5", "internal/image/capture/donor/copy.go",
		`if err == nil && !IsDown(i) {`,
		`if err == nil && i.ID == "" {`},
	{"donor uncordoned once it is Ready", "donor that is Ready from before its stop while it boots", "12", "internal/image/capture/donor/donor.go",
		`Needs:  []string{UndoStart},`,
		``},
	{"model changed while the scale set is at rest", "deletion that is preempted while the version is built", "13", "internal/azure/writer.go",
		`now.Sub(r.since) >= RestFor {`,
		`now.Sub(r.since) >= 0 {`},
	{"workbench protected while the copy is attached", "capture twice a day", "12", "internal/image/capture/table.go",
		`Needs: []string{undoDetach},
				Do: func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
					return c.donor`,
		`Do: func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
					return c.donor`},
	{"kured's lock given back", "capture twice a day", "7", "internal/image/capture/table.go",
		`return done, c.Cluster.ReleaseReboots(ctx, c.rebootHolder())`,
		`return done, ctx.Err()`},
	{"kured's lock of others respected", "kured reboots another node", "12", "internal/cluster/kube/kured/lock.go",
		`if lock.NodeID == holder || lock.expired(now) {`,
		`if lock.NodeID != "" || lock.expired(now) {`},
	{"extensions listed until they are gone", "extension that is deleted at the eleventh time", "4", "internal/image/capture/model/model.go",
		`	if len(toDelete) == 0 {
		return done, nil
	}
	e :=`,
		`	if len(toDelete) == 0 || m.Changed.Get().GrowTo < 0 {
		return done, nil
	}
	m.Changed.Set(func(s *Changed) { s.GrowTo = -1 })
	e :=`},
	{"customData kept unless --bootstrap baked", "capture twice a day", "5", "internal/image/capture/model/model.go",
		`	case t.Request.Bakes():
		want`,
		`	case t.Request.Bakes(), last == "":
		want`},
	{"copy of the disk deleted", "capture twice a day", "7", "internal/image/capture/table.go",
		`When:     []string{stepGeneralizedSnapshot},`,
		``},
	{"another donor's snapshot replaced", "left by an earlier capture", "10", "internal/image/plan/plan.go",
		`strings.EqualFold(s.Tags[fleet.TagBuiltFrom], options.Node)`,
		`s.Tags[fleet.TagBuiltFrom] != ""`},
	{"conflict repeated", "conflict at the model's change", "10", "internal/workflow/pass.go",
		`fleet.KindThrottled, fleet.KindConflict,`,
		`fleet.KindThrottled,`},
	{"token saved before its first poll", "TestKilledBeforeFirstPoll", "", "internal/workflow/pass.go",
		`Status: "Azure: " + c.Verb()}, p.Save(context.WithoutCancel(ctx))`,
		`Status: "Azure: " + c.Verb()}, nil`},
	{"token kept by the next process", "TestKilledBeforeFirstPoll", "", "internal/workflow/schedule.go",
		`		st.Begun = time.Time{}
`,
		`		st.Begun, st.Token = time.Time{}, ""
`},
	{"operation followed although a poll fails", "TestFaults", "", "internal/workflow/pass.go",
		`!fleet.Is(err, fleet.KindNotFound) && !fleet.Is(err, fleet.KindInvalid):`,
		`fleet.Is(err, fleet.KindHeld):`},
	{"operation followed although a poll is throttled", "TestFaults", "", "internal/workflow/pass.go",
		`!fleet.Is(err, fleet.KindNotFound) && !fleet.Is(err, fleet.KindInvalid):`,
		`fleet.Is(err, fleet.KindTransient):`},
	{"nothing changed after another wrote the record", "TestAnotherWriterEndsTheRun", "", "internal/workflow/run.go",
		`there.Writer != rec.Writer && there.Revision != rec.Revision:`,
		`there.Name != rec.Name && there.Revision != rec.Revision:`},
	{"stuck undo names what a person does", "TestFailure", "", "internal/workflow/outcome.go",
		`		if s.Undo.Manual != nil {`,
		`		if s.Undo.Manual != nil && rec.Phase == journal.Suspend {`},
	{"stuck undo that a step waits for ends the run", "TestFailure", "", "internal/workflow/schedule.go",
		`	stuck := st.State == journal.UndoFailed && slices`,
		`	stuck := st.State == journal.UndoFailed && r.Phase == journal.Undo && slices`},
	{"stuck undo ends with exit 4", "TestFailure", "", "internal/workflow/run.go",
		`rec.Phase != journal.Undo && ctx.Err() != nil || len(Remaining(x.table, rec)) > 0 {
		return`,
		`rec.Phase != journal.Undo && ctx.Err() != nil {
		return`},
	{"undo kept back by a failed one that it needs", "TestStuckUndoBlocks", "", "internal/workflow/schedule.go",
		`return r.Steps[t.owner(id).ID].State == journal.UndoFailed })`,
		`return r.Steps[t.owner(id).ID].State == journal.Failed })`},
	{"undo waits for others", "TestStuckUndoBlocks", "", "internal/workflow/schedule.go",
		`o := t.owner(id); return effectMayExist(r, o) && !blocked(t, r, o) })`,
		`return r.Steps[t.owner(id).ID].State != journal.Undone && effectMayExist(r, t.owner(id)) })`},
	{"key not saved beyond the run", "internal/image/rollback TestResumedAtModel", "", "internal/image/capture/capture.go",
		`	if closed {
		s.Key = nil`,
		`	if closed && s.Pool == "" {
		s.Key = nil`},
	{"state closed at each exit", "TestFailure", "", "internal/workflow/run.go",
		`x.workflow.State(!rec.Open())`,
		`x.workflow.State(rec.Ended != nil && rec.Ended.Exit == ExitDone)`},
	{"copy with the donor's disk encryption set", "test/simulate TestPoolsOfToday", "", "internal/image/capture/workbench.go",
		`Encryption: s.Encryption,
	})`,
		`})`},
	{"version with the donor's disk encryption set", "test/simulate TestPoolsOfToday", "", "internal/image/capture/version/build.go",
		`EncryptionSet:     i.Encryption.Set,`,
		``},
	{"disk encryption set that the model has no more refused", "test/simulate TestPoolsOfToday", "", "internal/image/plan/problem.go",
		`!set.Equal(model) && !q.PublishOnly`,
		`set == model`},
	{"other workflow's state closed", "TestOtherKindIsUndoneFirst", "", "internal/workflow/run.go",
		`	if rec.Phase == journal.Undo {
		x.update`,
		`	x.workflow = w
	if rec.Phase == journal.Undo {
		x.update`},
	{"model checked again before its change", "internal/image/rollback TestResumedAtModel", "", "internal/image/capture/model/model.go",
		`t.Request.AllowOwned).Err("patch model", string(pool.ID)); err != nil {`,
		`t.Request.AllowOwned).Err("patch model", string(pool.ID)); err != nil && t.Pool == "" {`},
	{"upgrade mode checked again before the model's change", "internal/image/rollback TestResumedAtModel", "", "internal/image/capture/model/model.go",
		`plan.ModelProblems(pool, t.Request.AllowRolling, t.Request.`,
		`plan.ModelProblems(pool, true, t.Request.`},
	{"upgrade mode checked again before a rollback", "TestResumedAtModel", "", "internal/image/rollback/steps.go",
		`problems := plan.ModelProblems(pool, r.req.AllowRolling, true, r.req.AllowOwned)`,
		`problems := plan.ModelProblems(pool, true, true, r.req.AllowOwned)`},
	{"rollback refused at its change", "TestResumedAtModel", "", "internal/image/rollback/steps.go",
		`		if err == nil {
			r.s.LastCustomData`,
		`		if err = nil; err == nil {
			r.s.LastCustomData`},
	{"workbench is the machine that its Node names", "internal/image/capture TestWorkbench", "", "internal/image/capture/observe.go",
		`if err := n.Claim().Is(i.Computer()); err != nil {
			const reason`,
		`if err := n.Claim().Is(i.Computer()); err == errors.ErrUnsupported {
			const reason`},
	{"workbench of the donor's pool", "internal/image/capture TestWorkbench", "", "internal/image/capture/observe.go",
		`others := only != "" || c.req.OtherPools`,
		`others := only == "" || c.req.OtherPools`},
	{"workbench that no other Node may be", "internal/image/capture TestWorkbench", "", "internal/image/capture/observe.go",
		`if _, rivals := all.Of(i.Computer()); len(rivals) > 0 {`,
		`if _, rivals := all.Of(i.Computer()); len(rivals) > 9 {`},
	{"Node is a machine by its host name", "internal/fleet TestClaim", "", "internal/fleet/claim.go",
		`case !strings.EqualFold(c.Name, m.HostName):`,
		`case c.Name == "":`},
	{"Node and machine read again before the power-off", "test/simulate TestHoleNodeThatChangesIsNotStopped", "", "internal/image/capture/donor/service.go",
		`err = u.Still(ctx, d.Cluster, i)`,
		`err = ctx.Err()`},
	{"pools of named groups alone", "internal/cli TestHoleForeignMachineCaptured", "", "internal/cli/policy.go",
		`if group := pool.Group(); slices.ContainsFunc(groups, group.Equal) {`,
		`if group := pool.Group(); len(groups) > 0 {`},
	{"twin Node in other letter case", "internal/image/rollback TestOtherLetterCase", "", "internal/fleet/claim.go",
		`slices.Clone(r.by[idKey(m.ID)])`,
		`slices.Clone(r.by["id:"+string(m.ID)])`},
	{"workbench of this pool in other letter case", "TestWorkbench", "", "internal/image/plan/problem.go",
		`return when(!by.Equal(pool), by)`,
		`return when(by != pool, by)`},
	{"pool preferred for the workbench in other letter case", "TestWorkbench", "", "internal/image/plan/problem.go",
		`!c.Pool.Equal(pool), c.Pool == ""`,
		`c.Pool != pool, c.Pool == ""`},
	{"rollback target in other letter case", "TestReturnTo", "", "internal/image/plan/gallery.go",
		`uses := target.ID.Equal(pool.Model.Image.ID)`,
		`uses := target.ID == pool.Model.Image.ID`},
	{"image of the model recognised in other letter case", "the model's image id in upper case", "4", "internal/image/plan/inherited.go",
		`if NamedDefinition(pool.ID, image) != "" {`,
		`if d := NamedDefinition(pool.ID, image); d != "" && d == DefinitionOf(pool.ID) {`},
	{"definition of the model recognised in other letter case", "baked with the definition in upper case, and a node added before the model has its customData", "5",
		"internal/image/capture/version/build.go",
		`pool.Model.Image.LatestOf().Equal(i.Names.Definition)`,
		`pool.Model.Image.LatestOf() == i.Names.Definition`},
	{"version found in other letter case", "the model's image id in upper case", "4", "internal/image/plan/gallery.go",
		`return v.ID.Equal(id) })`,
		`return v.ID == id })`},
	{"version names its customData", "capture twice a day", "5", "internal/image/capture/parts.go",
		`fleet.TagCustomData: s.CustomData, fleet.TagSecrets`,
		`fleet.TagSecrets`},
	{"owner's skip-remediation restored", "donor kept by its owners", "1", "internal/image/capture/donor/protect.go",
		`fleet.AnnotationSkipRemediation: was.Skip, was.Mark: nil`,
		`fleet.AnnotationSkipRemediation: nil, was.Mark: nil`},
	{"protection from scale set actions restored", "donor kept by its owners", "1", "internal/image/capture/donor/protect.go",
		`w, err := d.ensureProtection(ctx, p, u, was.Protection)`,
		`w, err := d.ensureProtection(ctx, p, u, fleet.Protection{ScaleIn: was.Protection.ScaleIn})`},
	{"workbench of another pool left alone", "workbench that another pool's capture takes", "2", "internal/image/capture/donor/protect.go",
		`if by := plan.UsedBy(node, s.Pool); by != "" {`,
		`if by := plan.UsedBy(node, s.Pool); by == "x" {`},
	{"workbench of another pool's scale set restored", "workbench of another pool", "2", "internal/image/capture/donor/protect.go",
		`w, err := d.ensureProtection(ctx, p, u, was.Protection)`,
		`if u.Mark == fleet.AnnotationWorkbench && u.Instance.Parent() != s.Pool {
		return done, nil
	}
	w, err := d.ensureProtection(ctx, p, u, was.Protection)`},
	{"workbench marked only as it was read", "workbench that another pool takes in the same second", "2", "internal/image/capture/donor/protect.go",
		`d.Cluster.AnnotateUnchanged(ctx, node, map`,
		`d.Cluster.Annotate(ctx, node.Name, map`},
	{"capture without a snapshot resumed on its day only", "killed before its snapshot, three days later", "5", "internal/image/capture/capture.go",
		`c.Now().Sub(r.Begun) < 24*time.Hour`,
		`c.Now().Sub(r.Begun) < 24*24*time.Hour`},
	{"refusal of a rolling pool", "rolling mode", "9", "internal/image/plan/problem.go",
		`refuse(strings.EqualFold(pool.UpgradeMode, fleet.Rolling) && !allowRolling,`,
		`refuse(strings.EqualFold(pool.UpgradeMode, fleet.Rolling) && !allowRolling && pool.ID == "",`},
	{"version of others not adopted", "version of others that appears while the copy is generalised", "5", "internal/image/capture/version/build.go",
		`by != i.Capture && !i.Found && //`,
		`by != i.Capture && !i.Found && by != "" && //`},
	{"rollback goes to the version before", "rollback past a version that was rolled back", "4", "internal/image/plan/gallery.go",
		`v.ProvisioningState == Succeeded && isGood(v) && !v.ID.Equal(current.ID) {`,
		`v.ProvisioningState == Succeeded && !v.ID.Equal(current.ID) {`},
	{"rollback passes over what never was live", "test/simulate TestOutcomeAbandonedVersionIsNotGoneBackTo", "", "internal/image/plan/gallery.go",
		`!IsUnjudged(v) && !IsMarked(v) }`,
		`!IsUnjudged(v) }`},
	{"version quarantined when it is taken back", "test/simulate TestWatch", "", "internal/image/plan/gallery.go",
		`fleet.TagQuarantine: string(r[:min(len(r), 250)])}`,
		`"other": string(r[:min(len(r), 250)])}`},
	{"bad nodes cordoned", "test/simulate TestWatch", "", "internal/image/watch/back.go",
		`w.Cluster.SetUnschedulable(ctx, c.Node.Name, true)`,
		`ctx.Err()`},
	{"take-back gone on with", "test/simulate TestWatchesThatDoNotFinish", "", "internal/image/watch/watch.go",
		`if why != "" {`,
		`if why == "none" {`},
	{"take-back proved by a record", "test/simulate TestHoleTagTakesVersionBack", "", "internal/image/watch/watch.go",
		`if tag := w.version.Tags[fleet.TagQuarantine]; tag != "" && w.finding == "" {`,
		`if tag := w.version.Tags[fleet.TagQuarantine]; tag != "" && w.finding == "" {
		w.finding = tag`},
	{"what the first donor's disk showed stays", "test/simulate TestHoleDonorsCommandInCleanImage", "", "internal/image/plan/plan.go",
		`return cmp.Or(known, v.SHA256)`,
		`return cmp.Or(v.SHA256, known)`},
	{"what a donor's disk showed restored only if named", "test/simulate TestHoleDonorsCommandInCleanImage", "", "internal/image/rollback/learned.go",
		`	if named {`,
		`	if named || name != "" {`},
	{"tag of the watch kept until bad nodes are seen to", "test/simulate TestWatchesThatDoNotFinish", "", "internal/image/plan/gallery.go",
		`fleet.TagQuarantine: string(r[:min(len(r), 250)])}`,
		`fleet.TagQuarantine: string(r[:min(len(r), 250)]), fleet.TagWatch: ""}`},
	{"another's image left alone by a take-back", "test/simulate TestWatchesThatDoNotFinish", "", "internal/image/rollback/steps.go",
		`problems.Refuse(was != fleet.ImageReference{} && !now.Same(was)`,
		`problems.Refuse(was != fleet.ImageReference{} && now.Text() == "none" && !now.Same(was)`},
	{"pods that were not read are no missing ones", "test/simulate TestWatchesThatDoNotFinish", "", "internal/image/prove/gates.go",
		`if c.Pods == nil { // not read yet`,
		`if c.Pods == nil && len(o.Others) == 0 {`},
	{"a new watch after the time of the last", "test/simulate TestWatchesThatDoNotFinish", "", "internal/image/watch/findings.go",
		`now.Before(since.Add(within))`,
		`!now.IsZero()`},
	{"a clone has the devices that its donor had", "test/simulate TestCanary", "", "internal/image/prove/gates.go",
		`b.Devices.Fewer(i.Size, n.Devices); name != ""`,
		`b.Devices.Fewer(i.Size, n.Devices); name == "none"`},
	{"the donor's devices read before it boots again", "TestBegin", "", "internal/image/capture/plan.go",
		`o.Donor != nil && s.Devices == ""`,
		`o.Donor != nil`},
	{"model changed once the clones came up", "test/simulate TestCanary", "", "internal/image/capture/table.go",
		`c.model.Rows(v.published(), version.StepVersion, canary.StepJudge, version.StepLive)`,
		`c.model.Rows(v.published(), version.StepVersion, version.StepLive)`},
	{"versions pruned once the clones came up", "test/simulate TestCanary", "", "internal/image/capture/table.go",
		`c.version.Prune(v.old, v.published(), version.StepVersion, canary.StepJudge, version.StepLive)`,
		`c.version.Prune(v.old, v.published(), version.StepVersion, version.StepLive)`},
	{"canary deleted without waiting for its creation", "test/simulate TestCanary", "", "internal/image/capture/canary/create.go",
		`case err == nil && set.Tags[fleet.TagCapture] == v.Capture && set.ProvisioningState != plan.Deleting:`,
		`case err == nil && set.ProvisioningState == plan.Succeeded:`},
	{"version quarantined before its capture fails", "test/simulate TestCanary", "", "internal/image/capture/canary/judge.go",
		`	w, err := p.Ensure(ctx, fleet.TagVersion{ID: version, Tags: plan.Quarantine(c.Cloud.Now(), s.Quarantine)}, func`,
		`	w, err := done, error(nil)
	_, _ = p.Ensure(ctx, fleet.TagVersion{ID: version}, func`},
	{"version out of latest until it is live", "test/simulate TestCanary", "", "internal/image/capture/version/build.go",
		`change.ExcludeFromLatest = change.ExcludeFromLatest || change.Tags[fleet.TagCanary] != ""`,
		`change.Tags[fleet.TagCanary] = cmp.Or(change.Tags[fleet.TagCanary])`},
	{"version that was never judged passed over", "test/simulate TestCanariesThatDoNotFinish", "", "internal/image/plan/gallery.go",
		`return !RolledBack(v) && !IsUnjudged(v) && !IsMarked(v) }`,
		`return !RolledBack(v) }`},
	{"version without a result used again", "test/simulate TestCanariesThatDoNotFinish", "", "internal/image/capture/version/build.go",
		`return v.ProvisioningState == plan.Succeeded || v`,
		`return v.ProvisioningState == plan.Succeeded && !plan.IsUnjudged(v) || v`},
	{"pods evicted from clones at once", "test/simulate TestClonesRegisteredAgain", "", "internal/image/clones/clones.go",
		`	drain := cluster.DrainOptions{UID: n.UID, GracePeriod: -1, Deadline: within, Fit: true}
	if err := c`,
		`	drain := cluster.DrainOptions{UID: n.UID, GracePeriod: -1, Deadline: within, Fit: true}
	if err := ctx.Err(); err != nil || within == 20*time.Second {
		return err
	}
	if err := c`},
	{"canary deleted once it is judged", "test/simulate TestCanary", "", "internal/image/capture/canary/canary.go",
		`When:     []string{StepJudge},`,
		``},
	{"decision kept by the next process", "test/simulate TestCanariesThatDoNotFinish", "", "internal/image/capture/plan.go",
		`	if r.Open() && c.get().Quarantine != "" { // judge ends the run`,
		`	if r.Open() && c.get().Quarantine == "none" {`},
}

// TestMutants checks that the bugs still apply to the code; with -mutants it plants them.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range slices.Concat(mutants, clusterMutants, freshMutants, rolloutMutants, operatorMutants, tuneMutants) {
		t.Run(m.promise, func(t *testing.T) {
			path := filepath.Join(root, m.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), m.old); n != 1 {
				t.Fatalf("the text to replace stands %d times in %s, not once; carry the bug over to today's code:\n%s", n, m.file, m.old)
			}
			folder, test, says := filepath.Join(root, "test/simulate"), "TestStories$/^"+regexp.QuoteMeta(strings.ReplaceAll(m.finder, " ", "_")), "invariant "+m.invariant+": "
			if m.invariant == "" {
				says = "--- FAIL: " + m.finder
				folder, test = filepath.Dir(path), m.finder
				if other, name, found := strings.Cut(m.finder, " "); found {
					folder, test, says = filepath.Join(root, other), name, "--- FAIL: "+name
				}
				tests, _ := filepath.Glob(filepath.Join(folder, "*_test.go"))
				if !slices.ContainsFunc(tests, func(file string) bool {
					text, _ := os.ReadFile(file)
					return strings.Contains(string(text), "\nfunc "+test+"(")
				}) {
					t.Fatalf("%s has no %s: name the package that has it", folder, test)
				}
			}
			if !*plant {
				return
			}
			temporary := t.TempDir()
			changed, overlay := filepath.Join(temporary, "changed.go"), filepath.Join(temporary, "overlay.json")
			replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
			if err != nil {
				t.Fatal(err)
			}
			for file, content := range map[string]string{changed: strings.Replace(string(text), m.old, m.now, 1), overlay: string(replace)} {
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-vet=off", "-count=1", "-timeout=2m", "-run", "^"+test+"$", folder)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), says) {
				t.Errorf("%q does not fail with %q: %v\n%s", m.finder, says, err, out)
			}
		})
	}
}
