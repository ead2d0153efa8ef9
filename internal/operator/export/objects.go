package export

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/fleet"
)

// Target returns the scale set that values name, by its name or ARM id, or All. It is also All for values
// without a target, whose Job shows the status of all pools.
func (v *Values) Target() string {
	if v.Kamino.TargetVMSS == "" {
		return All
	}
	return v.Kamino.TargetVMSS
}

// ResourceGroups are those in which the Job finds pools, beside that of azure.json.
func (v *Values) ResourceGroups() []string { return v.Ortet.Auto.ResourceGroups }

// Objects returns a ScaleSetPool for each of the pools, which are the Target's.
func (v *Values) Objects(pools []fleet.ResourceID) (objects []v1alpha1.ScaleSetPool) {
	for _, pool := range pools {
		spec := v.spec()
		spec.ScaleSet = string(pool)
		objects = append(objects, v1alpha1.ScaleSetPool{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScaleSetPool"},
			ObjectMeta: metav1.ObjectMeta{Name: objectName(pool, pools)}, Spec: spec,
		})
	}
	return objects
}

// suspended returns why the objects begin nothing; "" where they do.
func (v *Values) suspended() string {
	switch {
	case v.Kamino.TargetVMSS == "":
		return ""
	case v.Kamino.Auto.DryRun || v.Ortet.DryRun:
		return "dryRun is set, so the Job changes nothing"
	case !v.Kamino.Auto.CronJob.Enabled:
		return "kamino.auto.cronjob.enabled is not set, so the Job runs once"
	}
	return ""
}

func (v *Values) spec() (s v1alpha1.ScaleSetPoolSpec) {
	k, o := v.Kamino, v.Ortet
	if k.TargetVMSS == "" {
		return s
	}
	length := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	s.Suspend = v.suspended() != ""
	s.Donors = v1alpha1.DonorsSpec{
		PatchAnnotation: k.Auto.LastPatchAnnotation, RebootAnnotation: k.Auto.PendingRebootAnnotation,
		MinReady: length(v.minReady), MinCandidates: k.Auto.MinimumCandidates, SkipRules: unique(o.Auto.SkipRules),
		IgnoreNodes: unique(o.Auto.IgnoreNodes), IgnoreAnnotations: unique(o.Auto.IgnoreAnnotations),
	}
	s.Canary = v1alpha1.CanarySpec{Clones: 2, Soak: length(2 * time.Minute)} // as ortet capture --pool, where they can be made
	if o.Canary != nil {
		s.Canary.Clones, s.Canary.Required = *o.Canary, *o.Canary > 0
	}
	grace := time.Duration(k.Drain.GracePeriod) * time.Second
	if grace == 0 { // as ortet capture
		grace = 5 * time.Minute
	}
	s.Capture = &v1alpha1.CaptureSpec{
		Schedule: v1alpha1.Schedule(k.Auto.CronJob.Schedule), TimeZone: v1alpha1.TimeZone(o.Auto.TimeZone), Window: length(v.window),
		MaxImageAge: length(v.imageLimit), Bootstrap: v1alpha1.Bootstrap(title(o.Bootstrap)), History: k.ImageHistory, Replicas: o.Replicas,
		Online: o.Online, Deallocate: o.Deallocate, GracePeriod: length(grace), ForceDrain: k.Drain.Force, Fresh: o.Fresh, Patch: o.Patch,
		AcceptPoolCredentials: o.AcceptPoolCredentials, AcceptSecrets: unique(o.AcceptSecrets), RemoveSecrets: o.RemoveSecrets,
		ScanImages: o.ScanImages, Tune: fleet.Each(unique(o.Tune), func(name string) v1alpha1.Tuning { return v1alpha1.Tuning(name) }),
		Extensions: v1alpha1.ExtensionsSpec{Delete: v1alpha1.Deleted(title(o.Extensions))},
	}
	if o.Extensions != "none" {
		s.Capture.Extensions.Keep = unique(o.KeepExtensions)
	}
	if v.watch > 0 {
		s.Watch = &v1alpha1.WatchSpec{Duration: length(v.watch), RestoreLearned: unique(o.RestoreLearned)}
	}
	return s
}

func title(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// unique is for lists that the API server refuses with an item twice.
func unique(list []string) (out []string) {
	for _, x := range list {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// objectName is the scale set's name as Kubernetes can have it, with its resource group's before it if
// another has that name.
func objectName(pool fleet.ResourceID, pools []fleet.ResourceID) string {
	valid := func(id fleet.ResourceID) string {
		name := regexp.MustCompile(`[^a-z0-9-]+`).ReplaceAllString(strings.ToLower(id.Name()), "-")
		return strings.Trim(name, "-")
	}
	name := valid(pool)
	if slices.ContainsFunc(pools, func(other fleet.ResourceID) bool { return !other.Equal(pool) && valid(other) == name }) {
		name = valid(pool.Group()) + "-" + name
	}
	return name
}

// durations are fields whose Go text has zeros that nobody writes: 336h0m0s.
var durations = []string{"window", "maxImageAge", "gracePeriod", "minReady", "soak", "duration"}

// YAML returns an object as a person would write it.
func YAML(object v1alpha1.ScaleSetPool) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&object)
	if err != nil {
		return nil, fmt.Errorf("encode ScaleSetPool %s: %w", object.Name, err)
	}
	delete(fields, "status")
	var shorten func(map[string]any)
	shorten = func(m map[string]any) {
		for key, x := range m {
			switch x := x.(type) {
			case map[string]any:
				shorten(x)
			case string:
				if d, err := time.ParseDuration(x); err == nil && slices.Contains(durations, key) {
					m[key] = short(d)
				}
			}
		}
	}
	shorten(fields)
	return yaml.Marshal(fields)
}

// short is Go's text without zeros at its end, and without days, which the API does not read.
func short(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// elsewhere says where what no object has is set instead. Other keys are in an object, refused, or among the
// operator's values.
var elsewhere = []struct {
	keys []string
	text string
}{
	{[]string{
		"global", "kamino.name", "kamino.labels", "kamino.jobTtl",
		"ortet.auto.successfulJobsHistoryLimit", "ortet.auto.failedJobsHistoryLimit",
	}, "of Jobs; the operator makes none"},
	{[]string{"ortet.auto.deadlineSeconds"}, "of Jobs; the steps of the operator's runs have time limits of their own"},
	{[]string{"kamino.scheduleOnControlPlane"}, "see nodeSelector and tolerations of the chart ortet"},
	{[]string{
		"kamino.container.imageRegistry", "kamino.container.imageRepository", "kamino.container.imageTag",
		"kamino.container.imageHash", "kamino.container.pullByHash", "ortet.image",
	}, "see image.repository, image.tag and image.digest of the chart ortet: the operator's own image prepares disks too (--image)"},
	{[]string{"ortet.pools", "ortet.earlierSecrets"}, "of the Job's account; the operator's reads each Secret of its namespace"},
	{[]string{"ortet.policy"}, "of the Job's account; the chart ortet always makes the operator's policies"},
}

// Comments say what the objects are, and where what they cannot say is set.
func (v *Values) Comments() (all []string) {
	if v.Kamino.TargetVMSS == "" {
		all = append(all, "These objects only observe: kamino.targetVMSS is not set, so the Job captures nothing and shows the status.")
	} else if why := v.suspended(); why != "" {
		all = append(all, "spec.suspend is true: "+why+". Delete the line to have the operator capture by the schedule.")
	}
	if v.Kamino.TargetVMSS != "" && v.Ortet.Auto.TimeZone == "" {
		all = append(all, "ortet.auto.timeZone is empty: the CronJob's zone is the control plane's, and the object's is UTC.")
	}
	if v.Kamino.TargetVMSS != "" && v.Ortet.Auto.StartingDeadlineSeconds < 60 {
		all = append(all, "ortet.auto.startingDeadlineSeconds is less than a minute, which spec.capture.window is at least.")
	}
	if v.Kamino.Drain.GracePeriod == 0 && v.Kamino.TargetVMSS != "" {
		all = append(all, "kamino.drain.gracePeriod 0 is 300 s for ortet capture too.")
	}
	for _, e := range elsewhere {
		keys := slices.DeleteFunc(slices.Clone(e.keys), func(key string) bool { _, given := v.given[key]; return !given })
		if len(keys) > 0 {
			all = append(all, strings.Join(keys, ", ")+": "+e.text+".")
		}
	}
	return all
}

// logLevels are the operator's for those of kamino that it does not have.
var logLevels = map[string]string{"CRITICAL": "ERROR", "VERBOSE": "DEBUG"}

// Operator returns the values of the chart ortet that go with the objects.
func (v *Values) Operator(pools []fleet.ResourceID) ([]byte, error) {
	var groups []string
	for _, pool := range pools {
		groups = append(groups, string(pool.Group()))
	}
	slices.SortFunc(groups, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	operator := map[string]any{"enabled": true, "resourceGroups": slices.CompactFunc(groups, strings.EqualFold)}
	set := func(of, key string, value any) {
		if _, given := v.given[of]; given {
			operator[key] = value
		}
	}
	level := v.Kamino.LogLevel
	if other, has := logLevels[level]; has {
		level = other
	}
	set("kamino.logLevel", "logLevel", level)
	set("ortet.auto.maxParallel", "maxRuns", min(v.Ortet.Auto.MaxParallel, 100))
	set("ortet.otherPools", "otherPools", v.Ortet.OtherPools)
	set("ortet.exempt", "exempt", v.Ortet.Exempt)
	set("ortet.resources", "resources", v.Ortet.Resources)
	values := map[string]any{"operator": operator}
	if secret := v.Kamino.Container.PullSecret; secret != "" {
		values["image"] = map[string]any{"pullSecrets": []string{secret}}
	}
	return yaml.Marshal(values)
}
