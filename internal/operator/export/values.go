// Package export turns values of the chart vmss-prototype into ScaleSetPools that have the operator do
// what the chart's CronJob does. What an object cannot say is refused if it would change what happens,
// and otherwise is in a comment: nothing is dropped silently.
package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
	kubeyaml "sigs.k8s.io/yaml"

	prototype "github.com/ortet/ortet/charts/vmss-prototype"
	"github.com/ortet/ortet/internal/schedule"
	"github.com/ortet/ortet/internal/yamlfile"
)

// All is the target of values that name all pools of the cluster.
const All = "ALL"

// Values are those of a chart that makes a Job, a CronJob, or a Job that shows the status. Defaults are the
// chart's.
type Values struct {
	Kamino struct {
		ImageHistory int32  `json:"imageHistory"`
		TargetNode   string `json:"targetNode"`
		TargetVMSS   string `json:"targetVMSS"`
		Drain        struct {
			GracePeriod int64 `json:"gracePeriod"`
			Force       bool  `json:"force"`
		} `json:"drain"`
		NewUpdatedNodes int64  `json:"newUpdatedNodes"`
		LogLevel        string `json:"logLevel"`
		Container       struct {
			PullSecret string `json:"pullSecret"`
		} `json:"container"`
		Auto struct {
			LastPatchAnnotation     string `json:"lastPatchAnnotation"`
			PendingRebootAnnotation string `json:"pendingRebootAnnotation"`
			MinimumReadyTime        any    `json:"minimumReadyTime"`
			MinimumCandidates       int32  `json:"minimumCandidates"`
			MaximumImageAge         int64  `json:"maximumImageAge"`
			DryRun                  bool   `json:"dryRun"`
			CronJob                 struct {
				Enabled  bool   `json:"enabled"`
				Schedule string `json:"schedule"`
			} `json:"cronjob"`
		} `json:"auto"`
	} `json:"kamino"`
	Ortet struct {
		Namespace             string   `json:"namespace"`
		Bootstrap             string   `json:"bootstrap"`
		AcceptPoolCredentials bool     `json:"acceptPoolCredentials"`
		AcceptSecrets         []string `json:"acceptSecrets"`
		RemoveSecrets         bool     `json:"removeSecrets"`
		ScanImages            bool     `json:"scanImages"`
		Tune                  []string `json:"tune"`
		Extensions            string   `json:"extensions"`
		KeepExtensions        []string `json:"keepExtensions"`
		Auto                  struct {
			IgnoreNodes             []string `json:"ignoreNodes"`
			IgnoreAnnotations       []string `json:"ignoreAnnotations"`
			SkipRules               []string `json:"skipRules"`
			ResourceGroups          []string `json:"resourceGroups"`
			MaxParallel             int      `json:"maxParallel"`
			TimeZone                string   `json:"timeZone"`
			StartingDeadlineSeconds int64    `json:"startingDeadlineSeconds"`
		} `json:"auto"`
		PublishOnly bool   `json:"publishOnly"`
		Canary      *int32 `json:"canary"`
		CanaryTest  struct {
			ConfigMap string `json:"configMap"`
			Namespace string `json:"namespace"`
		} `json:"canaryTest"`
		Watch          string   `json:"watch"`
		RestoreLearned []string `json:"restoreLearned"`
		Again          bool     `json:"again"`
		Deallocate     bool     `json:"deallocate"`
		Online         bool     `json:"online"`
		Fresh          bool     `json:"fresh"`
		Patch          bool     `json:"patch"`
		Prepare        struct {
			Image   string   `json:"image"`
			Command []string `json:"command"`
		} `json:"prepare"`
		Replicas   int32          `json:"replicas"`
		DryRun     bool           `json:"dryRun"`
		Workbench  string         `json:"workbench"`
		OtherPools bool           `json:"otherPools"`
		Exempt     []string       `json:"exempt"`
		Resources  map[string]any `json:"resources"`
	} `json:"ortet"`

	given              map[string]any // values that are not the chart's defaults, by their dotted keys
	minReady, watch    time.Duration
	window, imageLimit time.Duration
}

// Read reads values. The error is a *yamlfile.InvalidError with all that is wrong, or that no object can say.
func Read(name string, data []byte) (*Values, error) {
	schema, err := strict(prototype.Schema)
	if err != nil {
		return nil, err
	}
	v := &Values{given: map[string]any{}}
	var defaults, given map[string]any
	if err := kubeyaml.Unmarshal(prototype.Values, v); err != nil {
		return nil, fmt.Errorf("cannot read the default values of the chart: %w", err)
	}
	if err := yaml.Unmarshal(prototype.Values, &defaults); err != nil {
		return nil, fmt.Errorf("cannot read the default values of the chart: %w", err)
	}
	if string(bytes.TrimSpace(data)) == "null" { // helm get values, of a release that has the defaults
		data = []byte("{}")
	}
	p := yamlfile.New(yamlfile.Form{Name: "values.yaml", Thing: "set of values", Schema: schema,
		Create: "give values of the chart vmss-prototype, as helm get values RELEASE -o yaml prints them"})
	if p.Decode(data, v) && p.Decode(data, &given) {
		differ("", given, defaults, v.given)
		v.check(p)
	}
	return v, p.Err(name)
}

// strict has a schema refuse unknown keys, as the chart's templates do, and require none: the chart has defaults.
func strict(schema []byte) ([]byte, error) {
	var doc any
	if err := json.Unmarshal(schema, &doc); err != nil {
		return nil, fmt.Errorf("cannot read the schema of the chart's values: %w", err)
	}
	var walk func(any)
	walk = func(x any) {
		m, _ := x.(map[string]any)
		if m == nil {
			return
		}
		delete(m, "required")
		if pattern, has := m["pattern"]; has {
			m["patternErrorMessage"] = fmt.Sprintf("it has to match %s", pattern)
		}
		properties, has := m["properties"].(map[string]any)
		if _, open := m["additionalProperties"]; has && !open {
			m["additionalProperties"] = false
		}
		for _, sub := range properties {
			walk(sub)
		}
		walk(m["items"])
	}
	walk(doc)
	return json.Marshal(doc)
}

// differ finds the leaves of values that are not the defaults.
func differ(at string, values, defaults, into map[string]any) {
	for key, value := range values {
		in, isMap := value.(map[string]any)
		of, _ := defaults[key].(map[string]any)
		if name := strings.TrimPrefix(at+"."+key, "."); isMap && name != "kamino.labels" && name != "ortet.resources" && name != "global" {
			differ(name, in, of, into)
		} else if !reflect.DeepEqual(value, defaults[key]) {
			into[name] = value
		}
	}
}

func duration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	d, err := model.ParseDuration(text)
	return time.Duration(d), err
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// check refuses what no object can say without another behaviour, and reads durations.
func (v *Values) check(p *yamlfile.Parser) {
	wants := func(holds bool, field, otherwise string) {
		if !holds {
			p.At(field, otherwise)
		}
	}
	k, o := &v.Kamino, &v.Ortet
	wants(k.TargetNode == "", "kamino.targetNode",
		"is one node, and a ScaleSetPool has rules choose it; delete the line, and set kamino.targetVMSS")
	wants(k.TargetVMSS != "" || !k.Auto.CronJob.Enabled, "kamino.auto.cronjob.enabled",
		"needs kamino.targetVMSS; set it to a scale set, or to "+All)
	if k.TargetVMSS == "" {
		return // the Job shows the status: of the rest nothing has an effect
	}
	wants(k.NewUpdatedNodes == 0, "kamino.newUpdatedNodes",
		"adds nodes, which the operator never does; set 0: the canary's clones show that nodes of the image come up")
	wants(!o.PublishOnly, "ortet.publishOnly",
		"leaves the model as it is, and the operator changes it; keep the CronJob for these pools")
	wants(o.Canary == nil || *o.Canary > 0 || len(o.Tune) == 0, "ortet.tune",
		"needs clones that prove it; set ortet.canary to 1 or more, or delete the line")
	wants(!o.Again, "ortet.again", "is for kamino.targetNode; delete the line")
	wants(o.Workbench == "", "ortet.workbench",
		"is one node, and the operator chooses a suitable one for each pool; delete the line")
	wants(o.CanaryTest.ConfigMap == "", "ortet.canaryTest.configMap", "is a test that the operator cannot run; "+
		"delete ortet.canaryTest to have clones pass the gates alone, or keep the CronJob for these pools")
	wants(o.CanaryTest.Namespace == "", "ortet.canaryTest.namespace", "is where that test runs; delete ortet.canaryTest")
	wants(o.Prepare.Image == "", "ortet.prepare.image", "runs as root on the node, which an object may not say; "+
		"set ortet.patch to have packages updated alone, or keep the CronJob for these pools")
	wants(len(o.Prepare.Command) == 0, "ortet.prepare.command", "is for ortet.prepare.image; delete ortet.prepare")
	wants(o.Fresh || !o.Patch, "ortet.patch", "is for a fresh donor; set ortet.fresh too")
	wants(!o.Online || !o.Deallocate, "ortet.deallocate",
		"stops the donor, and ortet.online leaves it in service; delete one of them")
	wants(o.Watch != "" || len(o.RestoreLearned) == 0, "ortet.restoreLearned",
		"is for the rollback of a watch; set ortet.watch too")

	v.imageLimit = time.Duration(k.Auto.MaximumImageAge) * day
	wants(k.Auto.MaximumImageAge > 0 || k.Auto.LastPatchAnnotation != "", "kamino.auto.maximumImageAge",
		"is 0, and without kamino.auto.lastPatchAnnotation no second image is ever due, which a ScaleSetPool cannot say; "+
			"set one of them, such as maximumImageAge to 14 days")
	wants(v.imageLimit <= year, "kamino.auto.maximumImageAge",
		fmt.Sprintf("is %d days, and a ScaleSetPool has at most 365; set 365 or less", k.Auto.MaximumImageAge))

	var err error
	switch ready := k.Auto.MinimumReadyTime.(type) {
	case float64:
		v.minReady = time.Duration(ready) * time.Second
	case string:
		if v.minReady, err = duration(ready); err != nil {
			v.minReady, err = duration(ready + "s")
		}
	}
	wants(err == nil && v.minReady <= year, "kamino.auto.minimumReadyTime",
		"is not a duration of at most 365d; give seconds, or a number with s, m, h or d")
	if o.Watch != "" {
		v.watch, err = duration(o.Watch)
		wants(err == nil && v.watch >= time.Minute && v.watch <= 7*day, "ortet.watch",
			"is not a duration from 1m to 7d; give one, such as 30m")
	}
	v.window = max(time.Duration(o.Auto.StartingDeadlineSeconds)*time.Second, time.Minute)
	_, err = schedule.Parse(k.Auto.CronJob.Schedule, time.Minute, o.Auto.TimeZone)
	if err != nil {
		p.At("kamino.auto.cronjob.schedule", err.Error())
	} else if _, err = schedule.Parse(k.Auto.CronJob.Schedule, v.window, o.Auto.TimeZone); err != nil {
		p.At("ortet.auto.startingDeadlineSeconds", "is how long after its schedule a capture may begin: "+err.Error())
	}
}
